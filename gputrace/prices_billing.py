"""Money from charged time, exactly: nothing is rounded before it is read, and no two currencies meet."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, TypeVar

from gputrace.prices_rows import Price

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gputrace.prices_timeline import Amount, Held

IDLE_POLICIES = ("separate", "even", "weighted", "none")
"""What a report does with idle time: a line of its own, equal parts, parts by cost, or left out."""

Owner = TypeVar("Owner")


class Bill:
    """Charged time by the price that held, kept as time until somebody asks for money.

    Attributes:
        unpriced: Time without a price, in the unit that was added.
    """

    __slots__ = ("_by_price", "unpriced")

    def __init__(self) -> None:
        self._by_price: dict[Price, Amount] = {}
        self.unpriced: Amount = 0

    def add(self, parts: Iterable[tuple[Held, Amount]]) -> None:
        """Add time by price, as `split` of a book or timeline gives it."""
        for held, amount in parts:
            if isinstance(held, Price):
                self._by_price[held] = self._by_price.get(held, 0) + amount
            else:
                self.unpriced += amount

    def merge(self, other: Bill) -> None:
        """Add all of another bill."""
        self.add(other._by_price.items())
        self.unpriced += other.unpriced

    def costs(self, units_per_hour: int) -> dict[str, Fraction]:
        """Return the exact cost by currency.

        Args:
            units_per_hour: How many of the added units make an hour.
        """
        costs: dict[str, Fraction] = defaultdict(Fraction)
        for price, amount in self._by_price.items():
            costs[price.currency] += amount * price.per_hour
        return {currency: cost / units_per_hour for currency, cost in costs.items()}


def spread_idle(
    policy: str, busy: Mapping[Owner, Fraction], idle: Fraction
) -> tuple[dict[Owner, Fraction], Fraction]:
    """Apply an idle policy to the costs of one currency.

    Untracked and unknown time are nobody's to spread; they never come here.

    Args:
        policy: One of `IDLE_POLICIES`.
        busy: Cost of charged time by owner.
        idle: Cost of idle time.

    Returns:
        Cost by owner, and the idle cost that is still a line of its own. The
        sum is that of the arguments, except under `none`.
    """
    if policy == "none":
        return dict(busy), Fraction(0)
    whole = sum(busy.values(), Fraction(0))
    if policy == "even" and busy:
        return {owner: cost + idle / len(busy) for owner, cost in busy.items()}, Fraction(0)
    if policy == "weighted" and whole:
        return {owner: cost + idle * cost / whole for owner, cost in busy.items()}, Fraction(0)
    # Separate, or nobody is there to bear it: then it stays in sight.
    return dict(busy), idle
