"""`gputrace payoff --watch`: the estimates as gauges, anew every so often, until it is stopped."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from opentelemetry.metrics import CallbackOptions, Observation

from gputrace import catalogue, lifecycle_runtime, settings
from gputrace.analysis.payoff_log import ColumnError
from gputrace.analysis.payoff_watch import SERVICE_NAME, gauge_rows
from gputrace.analysis.survey import NoDataError
from gputrace.cli.stopping import StopSignal
from gputrace.telemetry.providers import OwnProviders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from gputrace.analysis.payoff_reports import PayoffReport

FAILED = 2
# Metrics are exported when there are new ones, which is oftener.
_EXPORT_INTERVAL_S = 300.0
_LAST_EXPORT_MS = 2_000


class Gauges:
    """The gauge of the estimates, on providers of its own: what this process does itself is not tracked.

    Args:
        endpoint: OTLP/HTTP receiver; by default as ``OTEL_EXPORTER_OTLP_ENDPOINT`` says.
        folder: Folder for files.

    Attributes:
        where: Where they go, in words.

    Raises:
        SettingError: A setting cannot be used; the message names it.
    """

    def __init__(self, endpoint: str | None, folder: Path | None) -> None:
        self._rows: list[tuple[dict[str, str], float]] = []
        chosen = settings.read(endpoint=endpoint, data_dir=folder)
        receiver = chosen.endpoint or ("the OTLP endpoint of OTEL_*" if chosen.sends_metrics else None)
        self.where = " and ".join(filter(None, (receiver, chosen.data_directory)))
        own = OwnProviders(
            lifecycle_runtime.destinations(chosen),
            service_name=SERVICE_NAME,
            spans=False,
            metrics=True,
            export_interval_s=_EXPORT_INTERVAL_S,
            settle=lambda _: None,
            on_lost=lambda _: None,
        )
        assert own.meter_provider is not None  # noqa: S101 - metrics=True
        self._provider = own.meter_provider
        metric = catalogue.ESCALATION_ESTIMATE
        meter = self._provider.get_meter(catalogue.SCOPE_NAME, schema_url=catalogue.SCHEMA_URL)
        meter.create_observable_gauge(metric.name, [self._observe], metric.unit, metric.description)

    def _observe(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(value, attributes) for attributes, value in self._rows]

    def show(self, report: PayoffReport) -> None:
        """Export the estimates of a report."""
        self._rows = gauge_rows(report)
        self._provider.force_flush()

    def close(self) -> None:
        """Stop exporting."""
        self._provider.shutdown(_LAST_EXPORT_MS)


def watch(
    read: Callable[[], PayoffReport], every_s: float, *, endpoint: str | None, folder: Path | None
) -> int:
    """Estimate and export every so often until a signal says to stop.

    Where there is nothing to estimate yet, that is said once, and looked at again.

    Args:
        read: Reads the files and estimates.
        every_s: Time between two readings, s.
        endpoint: OTLP/HTTP receiver; by default as ``OTEL_EXPORTER_OTLP_ENDPOINT`` says.
        folder: Folder for files.

    Returns:
        The exit status.
    """
    stopped = StopSignal()
    try:
        gauges = Gauges(endpoint, folder)
    except settings.SettingError as error:
        print(f"gputrace payoff: {error}", file=sys.stderr)
        return FAILED
    said, shown = "", f"exporting estimates to {gauges.where}"
    while not stopped.has_come():
        try:
            report = read()
        except (NoDataError, ColumnError) as error:
            if str(error) != said:
                said = str(error)
                print(f"gputrace payoff: {said}; looking again every {every_s:g} s", file=sys.stderr)
        else:
            gauges.show(report)
            if said != shown:
                said = shown
                print(f"gputrace payoff: {shown} every {every_s:g} s", flush=True)
        stopped.wait(every_s)
    gauges.close()
    return 0
