"""What time costs while it is charged: by series, and by device and state.

Time is billed at the price of its device at that moment. Bills keep time by
price and become money only when they are read, so that the cost of features
and that of the device's charged time are the same sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import catalogue, ledger
from gputrace.prices_billing import Bill
from gputrace.telemetry import spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gputrace.accounts import Account
    from gputrace.cardinality import Series
    from gputrace.prices import PriceBook
    from gputrace.prices_rows import Price
    from gputrace.prices_timeline import Amount

_UNITS_PER_HOUR = ledger.SCALE * 3_600 * 1_000_000_000
_UNITS_PER_S = ledger.SCALE * 1_000_000_000

Rows = list[tuple[dict[str, str], float]]


class Costs:
    """Bills of one process.

    Args:
        book: The prices.
    """

    def __init__(self, book: PriceBook) -> None:
        self._book = book
        self._features: dict[Series, Bill] = {}
        self._states: dict[tuple[Account, str], Bill] = {}
        self._billed_ns: dict[tuple[Account, str], int] = {}

    def begin(self, account: Account) -> None:
        """Leave the time that a device has spent so far unbilled: there were no prices."""
        for state, spent_ns in account.states_ns().items():
            self._billed_ns[account, state] = spent_ns

    def refresh(self) -> None:
        """Look whether the price book's file changed; cheap enough for every tick."""
        self._book.refresh()

    def bill(
        self, account: Account, start_ns: int, until_ns: int, charges: Iterable[tuple[Series, int]]
    ) -> None:
        """Bill a stretch of a device's time.

        Args:
            account: The device, its states up to date at ``until_ns``.
            start_ns: Where the stretch begins, on the device's clock.
            until_ns: Where it ends.
            charges: What was charged in it, in 1/``SCALE`` ns by series.
        """
        device = (account.device.id, account.device.name, account.device.type)
        start_wall_ns, end_wall_ns = start_ns + spans.wall_offset_ns, until_ns + spans.wall_offset_ns
        for series, amount in charges:
            bill = self._features.setdefault(series, Bill())
            bill.add(self._book.split(device, start_wall_ns, end_wall_ns, amount))
        for state, spent_ns in account.states_ns().items():
            key = (account, state)
            amount = (spent_ns - self._billed_ns.get(key, 0)) * ledger.SCALE
            self._billed_ns[key] = spent_ns
            bill = self._states.setdefault(key, Bill())
            bill.add(self._book.split(device, start_wall_ns, end_wall_ns, amount))

    def split(
        self, account: Account, start_ns: int, until_ns: int, amount: int
    ) -> tuple[tuple[Price | None, Amount], ...]:
        """Return time that was charged on a device by the price that held.

        Args:
            account: The device.
            start_ns: Where the stretch begins, on the device's clock.
            until_ns: Where it ends.
            amount: 1/``SCALE`` ns.
        """
        device = (account.device.id, account.device.name, account.device.type)
        offset_ns = spans.wall_offset_ns
        return self._book.split(device, start_ns + offset_ns, until_ns + offset_ns, amount)

    def bill_state(self, account: Account, state: str, start_ns: int, until_ns: int, spent_ns: int) -> None:
        """Bill what a device that is shared by processes spent in one state.

        Args:
            account: The device.
            state: The state.
            start_ns: Where the stretch begins, on CLOCK_MONOTONIC.
            until_ns: Where it ends.
            spent_ns: How much of it was spent so.
        """
        if until_ns <= start_ns:
            return
        device = (account.device.id, account.device.name, account.device.type)
        start_wall_ns, end_wall_ns = start_ns + spans.wall_offset_ns, until_ns + spans.wall_offset_ns
        bill = self._states.setdefault((account, state), Bill())
        bill.add(self._book.split(device, start_wall_ns, end_wall_ns, spent_ns * ledger.SCALE))

    def by_feature(self) -> Rows:
        """Return the cost so far by the attributes of ``gputrace.feature.cost``."""
        return [row for series, bill in self._features.items() for row in _rows(series.attributes, bill)]

    def by_state(self, attributes_of: Mapping[Account, dict[str, str]]) -> Rows:
        """Return the cost so far by the attributes of ``gputrace.device.cost``.

        Args:
            attributes_of: The attributes of each device.
        """
        return [
            row
            for (account, state), bill in self._states.items()
            for row in _rows({**attributes_of[account], catalogue.DEVICE_STATE: state}, bill)
        ]

    def prices(self, attributes_of: Mapping[Account, dict[str, str]]) -> Rows:
        """Return the price in force of each device that has one, an hour."""
        found: Rows = []
        for account, attributes in attributes_of.items():
            device = account.device
            price = self._book.price_of(
                device.id, device.name, device.type, account.frontier_ns + spans.wall_offset_ns
            )
            if price is not None:
                found.append(({**attributes, catalogue.CURRENCY: price.currency}, float(price.per_hour)))
        return found

    def price_info(self, attributes_of: Mapping[Account, dict[str, str]]) -> Rows:
        """Return 1 for the price in force of each device, with where it is from and since when it holds."""
        found: Rows = []
        for account in attributes_of:
            device = account.device
            price = self._book.price_of(
                device.id, device.name, device.type, account.frontier_ns + spans.wall_offset_ns
            )
            if price is not None:
                told = {
                    catalogue.HW_ID: device.id,
                    catalogue.HW_NAME: device.name,
                    catalogue.CURRENCY: price.currency,
                    catalogue.PRICE_SKU: price.sku,
                    catalogue.PRICE_KIND: price.kind,
                    catalogue.PRICE_SOURCE: price.source,
                    catalogue.PRICE_DATE: None if price.as_of is None else price.as_of.isoformat(),
                }
                found.append(({name: value for name, value in told.items() if value is not None}, 1.0))
        return found

    def unpriced_s(self, attributes_of: Mapping[Account, dict[str, str]]) -> Rows:
        """Return the time so far of each device for which no price was in force, s."""
        unpriced: dict[Account, float] = {}
        for (account, _), bill in self._states.items():
            unpriced[account] = unpriced.get(account, 0.0) + float(bill.unpriced / _UNITS_PER_S)
        return [(attributes_of[account], seconds) for account, seconds in unpriced.items() if seconds]


def _rows(attributes: dict[str, str], bill: Bill) -> Rows:
    return [
        ({**attributes, catalogue.CURRENCY: currency}, float(cost))
        for currency, cost in bill.costs(_UNITS_PER_HOUR).items()
    ]
