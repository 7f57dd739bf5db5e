"""What runs in a process: the settler, the instruments that show its totals, the providers they lead to."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING

from gputrace import call_register, catalogue, faults, identity, settings
from gputrace.accounts import Totals
from gputrace.cascades_counting import Escalations
from gputrace.devices import cuda_runtime, selection
from gputrace.outcomes import Outcomes
from gputrace.settings_table import DEFAULT_DATA_DIRECTORY
from gputrace.settler import Settler
from gputrace.telemetry import spans
from gputrace.telemetry.metrics import Instruments

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputrace.accounts import Snapshot
    from gputrace.call import Call
    from gputrace.cardinality import Cap
    from gputrace.costs import Costs
    from gputrace.following import Followed
    from gputrace.hardware import Hardware
    from gputrace.settings import Settings
    from gputrace.telemetry.delivery import Destination
    from gputrace.telemetry.providers import OwnProviders
    from gputrace.telemetry.users import UsersProviders

# What a process that ends waits at most for a user's metric exporters, s; the provider itself waits longer.
_LAST_COLLECTION_S = 1.0

# However long it took to settle, what is at hand gets this long to be exported, s.
_LEAST_EXPORT_S = 0.5

# A disk is slow, a collector is down: files are worth waiting for, s.
_FILES_PATIENCE_S = 5.0

_RECORDING = faults.contained("record a histogram")


def destinations(chosen: Settings) -> list[Destination]:
    """Return where telemetry goes by the settings, where nobody has set OpenTelemetry up."""
    from gputrace.exporters import file, otlp
    from gputrace.telemetry.delivery import Destination

    found = []
    if chosen.data_directory is not None:
        # Absolute, so that a process that changes its directory keeps its files together.
        folder = Path(chosen.data_directory).absolute()
        found.append(
            Destination(
                str(folder),
                partial(file.span_exporter, folder, identity.instance_id),
                partial(file.metric_exporter, folder, identity.instance_id),
                _FILES_PATIENCE_S,
                partial(file.log_exporter, folder, identity.instance_id),
            )
        )
    elif not chosen.sends_logs:
        # Few receivers of spans and metrics take log events, and decisions of cascades are worth a file.
        folder = Path(DEFAULT_DATA_DIRECTORY).absolute()
        logs = partial(file.log_exporter, folder, identity.instance_id)
        found.append(Destination(str(folder), None, None, _FILES_PATIENCE_S, logs))
    if chosen.sends_spans or chosen.sends_metrics or chosen.sends_logs:
        found.append(
            Destination(
                otlp.name_of(chosen.endpoint),
                partial(otlp.span_exporter, chosen.endpoint) if chosen.sends_spans else None,
                partial(otlp.metric_exporter, chosen.endpoint) if chosen.sends_metrics else None,
                log_exporter=partial(otlp.log_exporter, chosen.endpoint) if chosen.sends_logs else None,
            )
        )
    return found


def open_costs(chosen: Settings) -> Costs | None:
    """Return what bills at the prices that the settings ask for, None where there are none.

    Raises:
        PriceBookError: The price book cannot be used; names file, row and key.
    """
    if chosen.prices is None and not any(os.environ.get(name) for name in settings.PRICE_VARIABLES):
        return None
    from gputrace.costs import Costs
    from gputrace.prices import PriceBook

    def on_problem(message: str) -> None:
        faults.log_once(f"prices:{message}", "gputrace: %s", message)

    book = PriceBook.from_environment(chosen.prices, on_problem=on_problem)
    return None if book is None else Costs(book)


def open_hardware(chosen: Settings) -> Hardware | None:
    """Return the GPUs of this node, None where this process can use none of them.

    A virtual GPU with a clock of its own shares no time with other processes and the driver.
    """
    if not (chosen.agent or (selection.gpu and cuda_runtime.in_real_time())):
        return None
    from gputrace.hardware import Hardware

    return Hardware(
        identity.instance_id(),
        monotonic_ns(),
        agent=chosen.agent,
        standard_metrics=chosen.hardware_metrics,
    )


class Runtime:
    """The settler of this process, and where what it finds goes.

    Args:
        chosen: The settings in force.
        users: The program's own providers.
        own: Those that gputrace made, where any were missing.
        instruments: Those of this process, once there are any: a meter takes a name only once.
        cap: The names that metrics have in this process.

    Attributes:
        settings: ``chosen``.
        own: ``own``; replaced when ``configure`` comes after the first tracked call.
        settler: Settles the calls.
        outcomes: Counts product events and units of work.
        escalations: Counts what cascades decide, and tells of it.
        instruments: Show the totals.
        on_settled: Called for each settled call.
    """

    def __init__(
        self,
        chosen: Settings,
        users: UsersProviders,
        own: OwnProviders | None,
        instruments: Instruments | None,
        cap: Cap,
    ) -> None:
        self.settings = chosen
        self.own = own
        self.on_settled: Callable[[], None] = lambda: None
        self._users = users
        selection.choose()
        totals = Totals(
            chosen.metric_attributes,
            chosen.value_limit,
            chosen.set_limit,
            chosen.features,
            chosen.models,
            cap=cap,
        )
        self.settler = Settler(totals, self._settled, hardware=open_hardware(chosen))
        self.settler.use_prices(open_costs(chosen))
        self.outcomes = Outcomes(totals, chosen.metric_attributes, chosen.outcomes)
        self.instruments = instruments or Instruments(self._snapshot)
        self.escalations = Escalations(totals, self.instruments.record_score)
        self.settler.on_tick = self.escalations.tell
        totals.count_more = self._count_more

    def apply(self, chosen: Settings) -> None:
        """Use other settings from here on."""
        if chosen.prices != self.settings.prices:
            self.settler.use_prices(open_costs(chosen))
        self.settings = chosen
        self.settler.totals.apply(
            chosen.metric_attributes, chosen.value_limit, chosen.set_limit, chosen.features, chosen.models
        )
        self.outcomes.apply(chosen.metric_attributes, chosen.outcomes)

    def _count_more(self, shown: Snapshot) -> None:
        self.outcomes.show(shown)
        self.escalations.show(shown)
        shown.budgets = [
            ({catalogue.FEATURE: one.feature, catalogue.CURRENCY: one.currency}, one.per_month)
            for one in self.settings.budgets
        ]

    def start(self) -> None:
        """Start the settler, and show what it counts."""
        self.instruments.take_snapshot = self._snapshot
        if self.settler.hardware is not None:
            self.settler.hardware.run(identity.instance_id(), monotonic_ns())
        self.settler.start()

    def _snapshot(self) -> Snapshot:
        shown = self.settler.snapshot()
        self.outcomes.tell()
        return shown

    def settle(self, deadline: float) -> bool:
        """Settle every call that has ended, and hand on what was told of requests, until ``deadline``."""
        done = self.settler.flush(deadline)
        self.outcomes.tell()
        return done

    def _settled(self, followed: Followed, measured: dict[str, str | float]) -> None:
        self.on_settled()
        call = followed.call
        if followed.series is not None and followed.counted:
            device_time = measured.get(catalogue.CALL_DEVICE_TIME)
            with _RECORDING:
                self._record(
                    call,
                    followed.series.attributes,
                    max(0, followed.last_ns - followed.first_ns) / 1_000_000_000,
                    None if device_time is None else float(device_time),
                )
        if call.span is not None:
            spans.finish(call, followed.last_ns, measured)
        call_register.ended(call)

    def _record(
        self, call: Call, attributes: dict[str, str], duration_s: float, device_time_s: float | None
    ) -> None:
        histograms = None if self.own is None else self.own.histograms
        if histograms is None:
            self.instruments.record(call, attributes, duration_s, device_time_s)
            return
        span = None if call.span is None else call.span.get_span_context()
        if span is not None and not span.trace_flags.sampled:
            span = None
        histograms.record(attributes, (duration_s, device_time_s), span)

    def flush(self, deadline: float) -> bool:
        """Settle every call that has ended and export what is known, until ``deadline``."""
        done = self.settle(deadline)
        if self.own is not None:
            done = self.own.flush(deadline, self.instruments.owes) and done
        return self._users.flush(deadline, self.instruments.owes) and done

    def stop(self, deadline: float) -> None:
        """Settle, export and stop, until ``deadline``; whatever hangs is left behind."""
        now = monotonic()
        self.settle(now + (deadline - now) / 2)
        self.escalations.give_up()
        self.settler.stop()
        # The user's readers go on to show what was counted until here.
        final = self.settler.snapshot()
        self.instruments.take_snapshot = lambda: final
        if not self.instruments.complete():
            # A user's provider collects once more when it shuts down: this makes two.
            self._users.collect_once(min(deadline, monotonic() + _LAST_COLLECTION_S))
        if self.own is not None:
            deadline = max(deadline, monotonic() + _LEAST_EXPORT_S)
            report_lost(self.own.shutdown(deadline, self.instruments.owes))
        if self.settler.hardware is not None:
            # Last: a driver that hangs takes its time.
            self.settler.hardware.sampler.stop()

    def after_fork(self) -> None:
        """Leave to the parent what is shared with other processes."""
        if self.settler.hardware is not None:
            self.settler.hardware.forget()


def report_lost(lost: list[str]) -> None:
    """Say once what could not be delivered."""
    if lost:
        faults.logger.warning("gputrace was stopped before it could deliver %s", "; ".join(lost))
