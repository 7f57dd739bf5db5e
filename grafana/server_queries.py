"""What the rows of the model servers' board share: whom they ask for, and what steps cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.grafana import recorded
from gputrace.grafana.promql import Scope, by, match, ratio
from gputrace.grafana.sources import labels

if TYPE_CHECKING:
    from gputrace.grafana.sources import Recorded

SCOPE = Scope(("currency", "environment", "job", "model", "feature"))
#: Of a server as a whole, whoever is chosen: how full its steps are, what its device time costs.
SERVERS = Scope(("currency", "environment", "job", "model"))
COMPUTED = match(catalogue.STEP_KIND, "prefill|decode", "=~")
NO_STEPS = "No steps of a model server: see docs/model-servers.md"
NO_PRICE = "No steps on priced devices"

_SERVER = (catalogue.MODEL, catalogue.HW_TYPE, catalogue.HW_NAME)
# What a second of a model on one kind of device cost over the range: two kinds have two prices.
_PRICE = ratio(
    SERVERS.total(recorded.FEATURE_COST, per=_SERVER), SERVERS.total(recorded.FEATURE_TIME, per=_SERVER)
)


def money(time: Recorded, *, per: tuple[str, ...] = ()) -> str:
    """Return what the device time of steps cost over the range; for instant queries.

    Args:
        time: Device time by feature and server.
        per: Attributes to keep.
    """
    kept = (*_SERVER, *(name for name in per if name not in _SERVER))
    seconds = SCOPE.total(time, per=kept)
    return f"sum {by(*per)}({seconds} * on ({labels(*_SERVER)}) group_left () ({_PRICE}))"


def priced(source: Recorded, *matchers: str) -> str:
    """Return the total of what servers did on devices that have a price; for instant queries."""
    return f"sum ({SCOPE.total(source, *matchers, per=_SERVER)} and on ({labels(*_SERVER)}) ({_PRICE}))"


def of_model(time: str) -> str:
    """Return device time by model and more, as a share of all time of the steps of that model."""
    whole = SERVERS.total(recorded.STEP_TIME, per=(catalogue.MODEL,))
    return f"{time} / on ({labels(catalogue.MODEL)}) group_left () ({whole} > 0)"
