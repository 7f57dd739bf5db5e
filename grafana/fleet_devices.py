"""The row of the fleet's board on each device: what it did, how it is now, and whether it can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.grafana import recorded
from gputrace.grafana.board import Row
from gputrace.grafana.fleet_queries import IDLE, SCOPE, UNKNOWN, UNREAD, USED
from gputrace.grafana.panels import Query, lines
from gputrace.grafana.promql import ratio
from gputrace.grafana.sources import labels
from gputrace.grafana.tables import Column, table
from gputrace.grafana.units import BYTES, CELSIUS, IDLE_STEPS, MONEY, PER_HOUR, SHARE, WATTS

if TYPE_CHECKING:
    from gputrace.catalogue import Metric
    from gputrace.grafana.panels import Panel

_ROW = (catalogue.HW_ID, catalogue.HW_NAME)


def row() -> Row:
    """Return the row."""
    return Row("Each device", (_devices(), _power(), _refusals()))


def _devices() -> Panel:
    columns = (
        Column("Device", label="hw_id"),
        Column("Kind", label="hw_name", width=150),
        Column("Used", ratio(_hours(USED), _hours()), unit=SHARE, bar=True, width=170),
        Column("Idle", ratio(_hours(IDLE), _hours()), unit=SHARE, steps=IDLE_STEPS),
        Column("Not read", ratio(_hours(UNKNOWN), _hours()), unit=SHARE),
        Column("Idle, money", SCOPE.total(recorded.DEVICE_COST, IDLE, per=_ROW), unit=MONEY),
        Column("Kernels now", _latest(catalogue.HW_GPU_UTILIZATION), unit=SHARE),
        Column("Memory", _latest(catalogue.HW_GPU_MEMORY_USAGE), unit=BYTES),
        Column("Memory limit", _latest(catalogue.HW_GPU_MEMORY_LIMIT), unit=BYTES),
        Column("Power", _latest(catalogue.HW_POWER), unit=WATTS),
        Column("Temperature", _latest(catalogue.HW_TEMPERATURE), unit=CELSIUS),
    )
    return table(
        "Every device ($currency)",
        "Over the range, and as read last. `Kernels now` is the driver's utilisation: the share of "
        "its last sample in which any kernel ran, not how much of the GPU it used.",
        columns,
        sort="Used",
        ascending=True,
        height=10,
        nothing=UNREAD,
    )


def _hours(*matchers: str) -> str:
    return SCOPE.total(recorded.DEVICE_TIME, *matchers, per=_ROW)


def _latest(metric: Metric) -> str:
    return f"max by ({labels(*_ROW)}) ({SCOPE.select(metric)})"


def _power() -> Panel:
    drawn = f"sum by ({labels(*_ROW)}) (rate({SCOPE.select(catalogue.HW_ENERGY)}[$__rate_interval]))"
    return lines(
        "Power of each device",
        "From the driver's energy counter where there is one, else from its power readings.",
        [Query(drawn, "{{hw_id}}")],
        WATTS,
        nothing="No energy is read",
    )


def _refusals() -> Panel:
    refused = SCOPE.rate(catalogue.HW_ERRORS, per=(catalogue.HW_ID, catalogue.ERROR_TYPE))
    return lines(
        "Refused readings an hour",
        "How often the driver refused to read a device, by why. A device that has fallen off the "
        "bus shows here first.",
        [Query(f"3600 * {refused}", "{{hw_id}} {{error_type}}")],
        PER_HOUR,
        nothing="No reading was refused",
    )
