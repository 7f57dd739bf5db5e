"""Whether the numbers of the other boards can be believed: for SREs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.grafana import recorded
from gputrace.grafana.board import Board, Row
from gputrace.grafana.fleet_queries import CHARGED, READ, USED
from gputrace.grafana.panels import Query, lines, stat
from gputrace.grafana.promql import Scope, match, or_none, ratio
from gputrace.grafana.sources import INSTANCE, JOB, labels
from gputrace.grafana.tables import Column, table
from gputrace.grafana.units import (
    BALANCE_STEPS,
    COUNT,
    COVERAGE_STEPS,
    FAULT_STEPS,
    PER_HOUR,
    SHARE,
    WHOLE,
)

if TYPE_CHECKING:
    from gputrace.catalogue import Metric
    from gputrace.grafana.panels import Panel

_SCOPE = Scope(("environment", "job"))
_GPU = match(catalogue.HW_TYPE, "gpu")
_REASON = (catalogue.LOSS_REASON,)
_ALIVE = f"count by ({labels(JOB)}) ({_SCOPE.select(catalogue.SDK_QUEUE_LENGTH)})"


def _believed() -> Row:
    return Row("Can the numbers be believed?", (_processes(), *_coverage(), _balance(), _lost(), _doubled()))


def _processes() -> Panel:
    return stat(
        "Processes",
        "How many processes with gputrace send metrics now.",
        f"sum ({_ALIVE})",
        WHOLE,
        nothing="Nothing reports",
    )


def _coverage() -> tuple[Panel, ...]:
    fleet = recorded.FLEET_TIME
    return (
        stat(
            "Used time tracked",
            "Of the time that GPUs were used, the share that tracked calls held. Under 95 %: somebody "
            "uses GPUs whom gputrace does not know; `gputrace doctor` names the processes.",
            ratio(_SCOPE.total(fleet, CHARGED, _GPU), _SCOPE.total(fleet, USED, _GPU)),
            SHARE,
            steps=COVERAGE_STEPS,
            nothing="No GPU was used",
        ),
        stat(
            "Time that is read",
            "Of all time of all devices, the share for which there is a reading. The rest is unknown, "
            "and never shown as idle.",
            ratio(_SCOPE.total(fleet, READ), _SCOPE.total(fleet)),
            SHARE,
            steps=COVERAGE_STEPS,
            nothing="No device is published",
        ),
    )


def _balance() -> Panel:
    charged = _SCOPE.total(recorded.FLEET_TIME, CHARGED)
    overlap = f"({_SCOPE.total(recorded.FLEET_OVERLAP)} or vector(0))"
    every_job = Scope(("environment",)).total(recorded.FEATURE_TIME)
    return stat(
        "Ledger off by",
        "Time charged to features, of all services, less what several processes charged at once, "
        "against what the devices' own ledgers say. Over 5 %: a process does not reach this "
        "Prometheus, or processes of a node do not see each other.",
        f"abs({every_job} - {overlap} - {charged}) / ({charged} > 0)",
        SHARE,
        steps=BALANCE_STEPS,
        nothing="Nothing was charged",
    )


def _lost() -> Panel:
    return stat(
        "Records lost",
        "Calls, spans and metric points that were accepted and not delivered. By reason below.",
        or_none(_SCOPE.increase(catalogue.SDK_LOST), _SCOPE.total(recorded.FLEET_TIME)),
        WHOLE,
        steps=FAULT_STEPS,
        nothing="Nothing reports",
    )


def _doubled() -> Panel:
    each = labels(catalogue.HW_ID, catalogue.PUBLISHER)
    published = f"count by ({each}) ({_SCOPE.select(catalogue.DEVICE_TIME)})"
    publishers = f"count by ({labels(catalogue.HW_ID)}) ({published})"
    return stat(
        "Doubly published",
        "Processes of a node that do not share GPUTRACE_NODE_DIR each publish its devices. Boards "
        "take one of them; what the others held is not subtracted from idle.",
        or_none(f"count ({publishers} > 1)", f"count ({published})"),
        WHOLE,
        nothing="No device is published",
        steps=((None, "green"), (1.0, "yellow")),
    )


def _losses() -> Row:
    return Row("What is missing", (*_uncounted(), _unpriced(), *_unnamed(), _faults()))


def _by_reason(metric: Metric) -> list[Query]:
    return [Query(f"3600 * {_SCOPE.rate(metric, per=(JOB, *_REASON))}", "{{job}}: {{gputrace_sdk_reason}}")]


def _uncounted() -> tuple[Panel, ...]:
    return (
        lines(
            "Records lost an hour",
            "By service and reason. `process_died`: a process was killed before it could export; others "
            "name the destination that refused or timed out.",
            _by_reason(catalogue.SDK_LOST),
            PER_HOUR,
            width=8,
            height=6,
            nothing="Nothing was lost",
        ),
        lines(
            "Calls that could not be timed, an hour",
            "They are counted, and charged nothing. By reason: `gputrace doctor` explains each.",
            _by_reason(catalogue.SDK_UNMEASURED),
            PER_HOUR,
            width=8,
            height=6,
            nothing="Every call was timed",
        ),
    )


def _unpriced() -> Panel:
    hardware = (catalogue.HW_NAME,)
    return lines(
        "Device time without a price",
        "Devices' worth of time for which the price book has no price: in every time, in no sum of "
        "money. Add a row for the device.",
        [Query(_SCOPE.rate(catalogue.SDK_UNPRICED_TIME, per=hardware), "{{hw_name}}")],
        COUNT,
        width=8,
        height=6,
        nothing="All time has a price, or no price book is set",
    )


def _unnamed() -> tuple[Panel, ...]:
    return (
        lines(
            "Values folded into __other__, an hour",
            "Values of attributes beyond the limit lose their names. If it is features or models: "
            "declare them, or raise GPUTRACE_ATTRIBUTE_VALUE_LIMIT. If it is ids: they belong on spans.",
            [Query(f"3600 * {_SCOPE.rate(catalogue.SDK_FOLDED, per=(JOB,))}", "{{job}}")],
            PER_HOUR,
            width=8,
            height=6,
            nothing="Nothing was folded",
        ),
        lines(
            "Baggage that was not believed, an hour",
            "Requests that said which feature they are for, and had no right to. Set a shared key if "
            "they are your own services.",
            _by_reason(catalogue.SDK_UNTRUSTED),
            PER_HOUR,
            width=8,
            height=6,
            nothing="All baggage was believed, or there was none",
        ),
    )


def _faults() -> Panel:
    return lines(
        "Faults of gputrace an hour",
        "Kept out of your program, and logged there once. Please report them.",
        [Query(f"3600 * {_SCOPE.rate(catalogue.SDK_FAULTS, per=(JOB,))}", "{{job}}")],
        PER_HOUR,
        width=8,
        height=6,
        nothing="No faults",
    )


def _who() -> Row:
    return Row("Who reports", (_queues(), _sources(), _series(), _versions(), _drivers()))


def _queues() -> Panel:
    return lines(
        "Open and unsettled calls",
        "By service. A queue that only grows: the settler does not keep up, or calls never end.",
        [Query(_SCOPE.now(catalogue.SDK_QUEUE_LENGTH, per=(JOB,)), "{{job}}")],
        COUNT,
        width=8,
        nothing="Nothing reports",
    )


def _sources() -> Panel:
    return lines(
        "How the time was obtained",
        "Devices' worth of charged time by source: `cuda_event` is measured on the device, "
        "`estimated` and `unknown` are not.",
        [
            Query(
                _SCOPE.rate(catalogue.FEATURE_TIME, per=(catalogue.TIME_SOURCE,)),
                "{{gputrace_time_source}}",
            )
        ],
        COUNT,
        width=8,
        stacked=True,
        nothing="Nothing was charged",
    )


def _series() -> Panel:
    series = 'count by (__name__) ({__name__=~"gputrace_.+"})'
    return table(
        "Series of each metric",
        "How many series Prometheus holds of each, over all processes. A service keeps to 1 500 "
        "sets of attributes a metric.",
        (
            Column("Metric", label="__name__"),
            Column("Series", series, unit=WHOLE, bar=True, width=150),
        ),
        sort="Series",
        width=8,
        nothing="Nothing reports",
    )


def _versions() -> Panel:
    unlabelled = (JOB, INSTANCE, catalogue.BUILD_VERSION)
    return table(
        "Processes and their versions",
        "One line a process. Versions that differ after a deploy are processes that were not restarted.",
        (
            Column("Service", label="job", width=160),
            Column("Process", label="instance"),
            Column("Version", label="gputrace_build_version", width=90),
            Column(
                "Reports",
                f"count by ({labels(*unlabelled)}) ({_SCOPE.select(catalogue.BUILD_INFO)})",
                unit=WHOLE,
            ),
        ),
        sort="Service",
        ascending=True,
        width=12,
        nothing="Nothing reports",
    )


def _drivers() -> Panel:
    nvml = _SCOPE.select(catalogue.NVML_UP)
    return table(
        "Driver's management library",
        "1 where it answers. 0: GPUs are timed and not read, so idle and untracked are unknown there.",
        (
            Column("Publisher", label="gputrace_publisher"),
            Column("Answers", f"max by ({labels(catalogue.PUBLISHER)}) ({nvml})", unit=WHOLE),
        ),
        sort="Answers",
        ascending=True,
        width=12,
        nothing="No process reads GPUs",
    )


def board() -> Board:
    """Return the board."""
    return Board(
        "gputrace-health",
        "For SREs: can the numbers be believed, what is missing, who reports.",
        _SCOPE,
        (_believed(), _losses(), _who()),
        start="now-24h",
    )
