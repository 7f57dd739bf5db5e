"""What `gputrace payoff --watch` would have published of the simulated cascades, for all processes."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

from opentelemetry.metrics import CallbackOptions, Observation

from gputrace import catalogue
from gputrace.simulate import made_up
from gputrace.simulate.history import History
from gputrace.simulate.plan import NS_PER_S
from gputrace.telemetry import by_hand

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gputrace.analysis.payoff_cascades import Decisions
    from gputrace.simulate.outputs import Outputs
    from gputrace.simulate.plan import Plan

_logger = logging.getLogger(__name__)

#: How often it estimates at most. Nobody sees the difference on a board, and a week has ten thousand minutes.
_ESTIMATED_EVERY_NS = 3_600 * NS_PER_S
_ESTIMATES = 100
#: How often it shows them: Prometheus forgets a value after five minutes.
_SHOWN_EVERY_NS = 240 * NS_PER_S

Rows = list[tuple[dict[str, str], float]]


def watch(plan: Plan, outputs: Outputs) -> Iterator[list[bytes]]:
    """Publish the estimates over the whole time, as soon as all of it was played.

    Args:
        plan: What was simulated.
        outputs: Where it goes.

    Yields:
        What Prometheus is to be sent.
    """
    events = outputs.folder or outputs.events
    decisions = [] if events is None else _read(events)
    if decisions:
        yield from _Watcher(plan, outputs, decisions).play()


def _read(folder: Any) -> list[Decisions]:
    """Return the decisions; none where there are none, or where what reads them is not installed."""
    try:
        from gputrace.analysis.payoff_cascades import read_folder
        from gputrace.analysis.payoff_reports import reachable
        from gputrace.analysis.survey import NoDataError
    except ModuleNotFoundError as error:
        _logger.warning(
            "gputrace simulate leaves out gputrace.escalation.estimate, which needs %s: pip install "
            '"gputrace[report]"',
            error.name,
        )
        return []
    try:
        return [reachable(one) for one in read_folder(folder) if len(one.columns["escalated"])]
    except NoDataError:
        return []


class _Watcher:
    """Publishes with a name of its own, as the watcher of a real fleet does."""

    def __init__(self, plan: Plan, outputs: Outputs, decisions: Sequence[Decisions]) -> None:
        from gputrace.analysis.payoff_watch import SERVICE_NAME

        self._plan = plan
        self._decisions = decisions
        self._rows: Rows = []
        self._intervals_ns = outputs.interval_ns(plan)
        self._sent_ns = dict.fromkeys(self._intervals_ns, plan.start_ns)
        self._providers = by_hand.ProvidersByHand(
            SERVICE_NAME,
            made_up.instance_id(plan, plan.processes),
            [one._replace(span_exporter=None, log_exporter=None) for one in outputs.destinations()],
            seed="",
            traced=0,
            start_ns=plan.start_ns,
        )
        self._history = None
        if outputs.remote_write is not None:
            self._history = History(dict(self._providers.resource.attributes))
        metric = catalogue.ESCALATION_ESTIMATE
        self._providers.meter.create_observable_gauge(metric.name, [self._observe])

    def _observe(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(value, attributes) for attributes, value in self._rows]

    def play(self) -> Iterator[list[bytes]]:
        """Estimate every so often, and show the estimates more often than that."""
        plan = self._plan
        steps = max(1, _SHOWN_EVERY_NS // plan.step_ns)
        every_ns = max(plan.step_ns, min(_ESTIMATED_EVERY_NS, math.ceil(plan.span_s / _ESTIMATES) * NS_PER_S))
        estimated_ns = plan.start_ns
        moments = [*range(plan.start_ns, plan.end_ns, steps * plan.step_ns)[1:], plan.end_ns]
        for at_ns in moments:
            if at_ns - estimated_ns >= every_ns or at_ns == plan.end_ns:
                estimated_ns = at_ns
                self._rows = self._estimated(at_ns)
            # An export with nothing in it would only be in the way of who reads the files.
            if self._rows:
                self._show(at_ns)
            if self._history is not None and (at_ns - plan.start_ns) % _ESTIMATED_EVERY_NS == 0:
                yield list(self._history.flush())
        self._providers.shutdown()
        if self._history is not None:
            yield list(self._history.flush())

    def _estimated(self, at_ns: int) -> Rows:
        """Return the estimates from what was decided by then."""
        from gputrace.analysis import payoff
        from gputrace.analysis.payoff_reports import Asked
        from gputrace.analysis.payoff_watch import rows_of

        asked, found = Asked(), Rows()
        for one in self._decisions:
            known = one.columns["time"] <= at_ns / NS_PER_S
            if not known.any():
                continue
            columns = {name: values[known] for name, values in one.columns.items()}
            estimates = payoff.estimate(columns, level=asked.level, overhead=asked.overhead)
            found += rows_of(one.cascade, one.feature, estimates, asked.level)
        return found

    def _show(self, at_ns: int) -> None:
        collected = self._providers.meter.collect()
        for name, interval_ns in self._intervals_ns.items():
            if at_ns - self._sent_ns[name] >= interval_ns or at_ns == self._plan.end_ns:
                self._sent_ns[name] = at_ns
                self._providers.send(collected, at_ns, name)
        if self._history is not None:
            self._history.take(collected, at_ns)
