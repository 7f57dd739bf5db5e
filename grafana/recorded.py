"""What rules record: rates over five minutes, so that no board reads every process's counters for days.

A rate over five minutes, read every five minutes, counts every second once: its windows lie side by side.
What it grew by in each is recorded once a window, so that a total over a month reads 8 640 samples of a
series; a rate, which curves and alerts read at any moment, has five times as many. Where rows of a board
need neither model nor device, they read sums that have lost those labels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.grafana.promql import HOUR_OF_STEPS, LONG, SHORT, SHORT_S, by, match, select
from gputrace.grafana.sources import ENVIRONMENT, RESOURCE, Recorded, labels, name_of

if TYPE_CHECKING:
    from gputrace.catalogue import Metric

_SPENDER = (*RESOURCE, catalogue.FEATURE)
_OF_FEATURE = (*RESOURCE, catalogue.FEATURE, catalogue.MODEL, catalogue.HW_TYPE, catalogue.HW_NAME)
_OF_FLEET = (ENVIRONMENT, catalogue.HW_TYPE, catalogue.HW_NAME, catalogue.DEVICE_STATE)
_OF_DEVICE = (catalogue.HW_ID, *_OF_FLEET)
_OF_CASCADE = (*RESOURCE, catalogue.ESCALATION_CASCADE, catalogue.FEATURE)
_OF_SERVER = (*RESOURCE, catalogue.MODEL, catalogue.HW_TYPE, catalogue.HW_NAME)
_ONE_PUBLISHER = labels(catalogue.HW_ID, catalogue.PUBLISHER)


def _stem(metric: Metric) -> str:
    return name_of(metric).removesuffix("_total")


def _rate(level: str, metric: Metric, kept: tuple[str, ...]) -> Recorded:
    return _summed(level, metric, kept, f"sum {by(*kept)}(rate({name_of(metric)}[{SHORT}]))")


def _summed(level: str, metric: Metric, kept: tuple[str, ...], expr: str) -> Recorded:
    """Return a rate with its sums."""
    metrics = (name_of(metric),)
    rate = Recorded(f"{level}:{_stem(metric)}:rate{SHORT}", expr, kept, metrics, f"{metric.unit}/s")
    whole = _sum(level, rate, kept)
    return replace(rate, sums=(whole,))


def _sum(level: str, rate: Recorded, kept: tuple[str, ...]) -> Recorded:
    expr = f"sum {by(*kept)}({SHORT_S} * {rate.name})"
    stem = rate.name.split(":")[1]
    return Recorded(f"{level}:{stem}:increase{SHORT}", expr, kept, rate.metrics, rate.unit.removesuffix("/s"))


def _coarser(rate: Recorded, level: str, kept: tuple[str, ...]) -> Recorded:
    """Return a rate that has sums by fewer labels too.

    Args:
        rate: The rate.
        level: What its own sums are called, as those by fewer labels take its name.
        kept: The fewer labels.
    """
    return replace(rate, sums=(_sum(rate.name.partition(":")[0], rate, kept), _sum(level, rate, rate.labels)))


def _published(level: str, metric: Metric, kept: tuple[str, ...]) -> Recorded:
    """Record what one publisher of each device says, where several cannot see each other.

    That is the one that covers most of the last minutes, and of several such the one that has seen more
    charged.
    """
    time = catalogue.DEVICE_TIME
    charged = match(catalogue.DEVICE_STATE, "charged")
    covers = " + ".join(
        f"sum {by(catalogue.HW_ID, catalogue.PUBLISHER)}(rate({selected}[{SHORT}]))"
        for selected in (select(time), select(time, charged))
    )
    published = by(catalogue.PUBLISHER, catalogue.HW_ID, *_without_id(kept))
    each = f"sum {published}(rate({name_of(metric)}[{SHORT}]))"
    chosen = f"topk {by(catalogue.HW_ID)}(1, {covers})"
    return _summed(level, metric, kept, f"sum {by(*kept)}({each} and on ({_ONE_PUBLISHER}) {chosen})")


def _without_id(kept: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in kept if name != catalogue.HW_ID)


def _hourly(rate: Recorded, kept: tuple[str, ...] = ()) -> Recorded:
    expr = f"{SHORT_S} * sum_over_time({rate.name}[{HOUR_OF_STEPS}:{SHORT}])"
    name = f"{rate.name.rpartition(':')[0]}:increase{LONG}"
    if kept:
        expr = f"sum {by(*kept)}({expr})"
    return Recorded(name, expr, kept or rate.labels, rate.metrics, rate.unit.removesuffix("/s"))


FEATURE_COST = _coarser(
    _rate("feature", catalogue.FEATURE_COST, (*_OF_FEATURE, catalogue.CURRENCY)),
    "model",
    (*_SPENDER, catalogue.CURRENCY),
)
FEATURE_TIME = _coarser(_rate("feature", catalogue.FEATURE_TIME, _OF_FEATURE), "model", _SPENDER)
# Read as a rate alone.
CALLS = replace(_rate("feature", catalogue.CALLS, (*_SPENDER, catalogue.MODEL, catalogue.STATUS)), sums=())
REQUESTS = _coarser(_rate("feature", catalogue.REQUESTS, (*_SPENDER, catalogue.STATUS)), "status", _SPENDER)
OUTCOMES = _rate("feature", catalogue.OUTCOMES, (*RESOURCE, catalogue.FEATURE, catalogue.OUTCOME_NAME))
UNITS = _rate("feature", catalogue.UNITS, (*RESOURCE, catalogue.FEATURE, catalogue.UNIT_NAME))
DEVICE_COST = _published("device", catalogue.DEVICE_COST, (*_OF_DEVICE, catalogue.CURRENCY))
DEVICE_TIME = _published("device", catalogue.DEVICE_TIME, _OF_DEVICE)
FLEET_COST = _published("fleet", catalogue.DEVICE_COST, (*_OF_FLEET, catalogue.CURRENCY))
FLEET_TIME = _published("fleet", catalogue.DEVICE_TIME, _OF_FLEET)
FLEET_OVERLAP = _published(
    "fleet", catalogue.DEVICE_OVERLAP_TIME, (ENVIRONMENT, catalogue.HW_TYPE, catalogue.HW_NAME)
)
ESCALATION_REQUESTS = _rate(
    "cascade", catalogue.ESCALATION_REQUESTS, (*_OF_CASCADE, catalogue.ESCALATION_DECISION)
)
ESCALATION_COST = _rate(
    "cascade", catalogue.ESCALATION_COST, (*_OF_CASCADE, catalogue.STAGE, catalogue.CURRENCY)
)
# Who pays for a step is known by feature; how many steps there were, by server alone.
STEPS = _rate("server", catalogue.STEPS, (*_OF_SERVER, catalogue.STEP_REGIME))
STEP_MEMBERS = _rate("feature", catalogue.STEP_MEMBERS, _OF_FEATURE)
STEP_TOKENS = _rate("feature", catalogue.STEP_TOKENS, (*_OF_FEATURE, catalogue.STEP_KIND))
STEP_TIME = _rate(
    "feature", catalogue.STEP_TIME, (*_OF_FEATURE, catalogue.STEP_PHASE, catalogue.STEP_WEIGHTS)
)
STEP_CACHED_TIME = _rate("feature", catalogue.STEP_CACHED_TIME, _OF_FEATURE)
STEP_RECOMPUTED_TIME = _rate("feature", catalogue.STEP_RECOMPUTED_TIME, _OF_FEATURE)

RATES = (
    FEATURE_COST,
    FEATURE_TIME,
    CALLS,
    REQUESTS,
    OUTCOMES,
    UNITS,
    DEVICE_COST,
    DEVICE_TIME,
    FLEET_COST,
    FLEET_TIME,
    FLEET_OVERLAP,
    ESCALATION_REQUESTS,
    ESCALATION_COST,
    STEPS,
    STEP_MEMBERS,
    STEP_TOKENS,
    STEP_TIME,
    STEP_CACHED_TIME,
    STEP_RECOMPUTED_TIME,
)
SUMS = tuple(one for rate in RATES for one in rate.sums)

FEATURE_COST_HOURLY = _hourly(FEATURE_COST, (*_SPENDER, catalogue.CURRENCY))
FEATURE_TIME_HOURLY = _hourly(FEATURE_TIME)
REQUESTS_HOURLY = _hourly(REQUESTS)
FLEET_COST_HOURLY = _hourly(FLEET_COST)
FLEET_TIME_HOURLY = _hourly(FLEET_TIME)
FLEET_OVERLAP_HOURLY = _hourly(FLEET_OVERLAP)
ESCALATION_REQUESTS_HOURLY = _hourly(ESCALATION_REQUESTS)
ESCALATION_COST_HOURLY = _hourly(ESCALATION_COST)

HOURS = (
    FEATURE_COST_HOURLY,
    FEATURE_TIME_HOURLY,
    REQUESTS_HOURLY,
    FLEET_COST_HOURLY,
    FLEET_TIME_HOURLY,
    FLEET_OVERLAP_HOURLY,
    ESCALATION_REQUESTS_HOURLY,
    ESCALATION_COST_HOURLY,
)

# The hour that ends at midnight of the first belongs to the month before. `@ end()` is the moment that is
# asked for, while the subquery walks through the hours before it: of windows it would be nine thousand, more
# than promtool evaluates.
_THIS_MONTH = "month(vector(time() - 1)) == on () month(last_over_time(vector(time() - 1)[1m:1m] @ end()))"
MONTH_LEFT = Recorded(
    "gputrace:month_left:hours",
    "24 * (days_in_month() - day_of_month() + 1) - hour() - minute() / 60",
    (),
    (),
    "h",
)
MONTH_LENGTH = Recorded("gputrace:month_length:hours", "24 * days_in_month()", (), (), "h")


def _month(rate: Recorded) -> Recorded:
    of_month = f"sum_over_time({rate.sums[0].name}[{HOUR_OF_STEPS}]) and on () ({_THIS_MONTH})"
    return Recorded(
        f"{rate.name.rpartition(':')[0]}:month_to_date",
        f"sum_over_time(({of_month})[31d:{LONG}])",
        rate.sums[0].labels,
        rate.metrics,
        rate.sums[0].unit,
    )


FEATURE_COST_MONTH = _month(FEATURE_COST)
FLEET_COST_MONTH = _month(FLEET_COST)
MONTHS = (MONTH_LENGTH, MONTH_LEFT, FEATURE_COST_MONTH, FLEET_COST_MONTH)
RECORDED = (*RATES, *SUMS, *HOURS, *MONTHS)
