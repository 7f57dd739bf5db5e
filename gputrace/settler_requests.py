"""Sums up requests: what the calls inside each came to, told once all of them are settled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import catalogue, ledger
from gputrace.prices_billing import Bill
from gputrace.settler_batches import Batches

if TYPE_CHECKING:
    from gputrace.accounts import Totals
    from gputrace.call import Call
    from gputrace.following import Followed
    from gputrace.prices_rows import Price
    from gputrace.prices_timeline import Amount
    from gputrace.requests import Request

    Parts = tuple[tuple[Price | None, Amount], ...] | None
    Rows = list[tuple[dict[str, str], float]]
    Measured = dict[str, str | float]
    Key = tuple[tuple[str, str], ...]

#: A request whose work goes on for longer after its end is told without the rest. A simulation, in which all
#: takes longer, is more patient.
PATIENCE_NS = 30_000_000_000
_UNITS_PER_HOUR = ledger.SCALE * 3_600 * 1_000_000_000
_UNITS_PER_S = ledger.SCALE * 1_000_000_000


def request_of(call: Call) -> Request | None:
    """Return the request that a call is in or is, None where it is in none."""
    root = call if call.root is None else call.root
    return root.request if root.site.is_request else None


class Requests:
    """The requests that are followed, and the totals of those that are settled.

    Args:
        totals: Caps the names of routes, and how many sets there are of them.

    Attributes:
        batches: The batches that serve them.
    """

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self.batches = Batches(totals)
        self._ended: list[tuple[Request, Followed, int]] = []
        self._counts: dict[tuple[Key, str], int] = {}
        self._calls: dict[Key, int] = {}
        self._charged: dict[Key, int] = {}
        self._bills: dict[Key, Bill] = {}

    @staticmethod
    def opened(followed: Followed) -> None:
        """Take note of a call that the settler follows from here on."""
        if followed.batch is not None:
            followed.batch.following += 1
        request = request_of(followed.call)
        if request is not None:
            request.open += 1

    @staticmethod
    def charged(request: Request, amount: int, parts: Parts) -> None:
        """Count what was charged inside a request.

        Args:
            request: The request.
            amount: 1/``SCALE`` ns.
            parts: The same by the price that held, None where nothing is billed.
        """
        request.charged += amount
        if parts is not None:
            if request.bill is None:
                request.bill = Bill()
            request.bill.add(parts)

    def concluded(self, followed: Followed, now_ns: int) -> bool:
        """Take note that a call is settled.

        Returns:
            Whether it is a request, which is told later: when all inside it is settled.
        """
        call = followed.call
        self.batches.concluded(followed)
        request = request_of(call)
        if request is None:
            return False
        request.open -= 1
        if call is request.call:
            self._ended.append((request, followed, now_ns))
            return True
        if call.site.hold != "none" and followed.batch is None:
            request.calls += 1
        return False

    def settled(self, now_ns: int) -> list[tuple[Followed, Measured]]:
        """Return the requests that are settled by now, with what is known of each, and count them."""
        told: list[tuple[Followed, Measured]] = []
        waiting = []
        for ended in self._ended:
            request, followed, ended_ns = ended
            if (request.open or request.expected) and now_ns - ended_ns < PATIENCE_NS:
                waiting.append(ended)
            else:
                told.append((followed, self._tell(request)))
        self._ended = waiting
        return told

    def _tell(self, request: Request) -> Measured:
        call = request.call
        route = request.route or call.site.operation
        kept = {
            catalogue.HTTP_ROUTE: self._totals.kept(catalogue.HTTP_ROUTE, route),
            catalogue.FEATURE: self._totals.kept(
                catalogue.FEATURE, call.attribution.feature or catalogue.NO_FEATURE
            ),
        }
        key = tuple(self._totals.counted_as(catalogue.REQUEST_TIME, kept).items())
        status = call.status or "ok"
        self._counts[key, status] = self._counts.get((key, status), 0) + 1
        self._calls[key] = self._calls.get(key, 0) + request.calls
        self._charged[key] = self._charged.get(key, 0) + request.charged
        measured: Measured = {
            catalogue.HTTP_ROUTE: route,
            catalogue.REQUEST_CALLS_ATTRIBUTE: request.calls,
            catalogue.CALL_DEVICE_TIME: request.charged / _UNITS_PER_S,
        }
        if request.bill is not None:
            self._bills.setdefault(key, Bill()).merge(request.bill)
            costs = request.bill.costs(_UNITS_PER_HOUR)
            # Two currencies are never added: where there are two, the report has them by device.
            if len(costs) == 1:
                ((currency, cost),) = costs.items()
                measured[catalogue.REQUEST_COST_ATTRIBUTE] = float(cost)
                measured[catalogue.CURRENCY] = currency
        return measured

    def rows(self) -> dict[str, Rows]:
        """Return what to show, by the name of the metric."""
        return self.batches.rows() | {
            catalogue.REQUESTS.name: [
                ({**dict(key), catalogue.STATUS: status}, count)
                for (key, status), count in self._counts.items()
            ],
            catalogue.REQUEST_CALLS.name: [(dict(key), count) for key, count in self._calls.items()],
            catalogue.REQUEST_TIME.name: [
                (dict(key), charged / _UNITS_PER_S) for key, charged in self._charged.items()
            ],
            catalogue.REQUEST_COST.name: [
                ({**dict(key), catalogue.CURRENCY: currency}, float(cost))
                for key, bill in self._bills.items()
                for currency, cost in bill.costs(_UNITS_PER_HOUR).items()
            ],
        }
