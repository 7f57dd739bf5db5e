"""Where a simulation goes: files, an OTLP receiver, the history of a Prometheus."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gputrace import identity
from gputrace.exporters import file, otlp
from gputrace.simulate.plan import PlanError
from gputrace.telemetry.delivery import Destination

if TYPE_CHECKING:
    from pathlib import Path

    from gputrace.simulate.plan import Plan

#: Files say what counters stood at; so many times are enough for any report.
_MOST_IN_FILES = 100


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where a simulation goes.

    Attributes:
        folder: Files for ``gputrace report``; None for none.
        endpoint: Base URL of an OTLP/HTTP receiver.
        remote_write: URL of a Prometheus that takes remote write.
        events: Where log events are kept besides, for who watches the cascades; None where ``folder`` does.
    """

    folder: Path | None = None
    endpoint: str | None = None
    remote_write: str | None = None
    events: Path | None = None

    def check(self) -> None:
        """Refuse a folder in which there are files already.

        Raises:
            PlanError: There are: two simulations in one folder would be added up.
        """
        if self.folder is not None and self.folder.is_dir() and any(self.folder.glob("*.jsonl")):
            raise PlanError(
                f"{self.folder} holds files already, and a report would add up what is in them: give --data "
                "another folder, or remove them"
            )

    def destinations(self) -> list[Destination]:
        """Return what spans, log events and metrics are exported to."""
        found = []
        if self.folder is not None:
            instance = identity.instance_id
            found.append(
                Destination(
                    str(self.folder),
                    partial(file.span_exporter, self.folder, instance),
                    partial(file.metric_exporter, self.folder, instance),
                    log_exporter=partial(file.log_exporter, self.folder, instance),
                )
            )
        if self.events is not None:
            kept = partial(file.log_exporter, self.events, identity.instance_id)
            found.append(Destination(str(self.events), None, None, log_exporter=kept))
        if self.endpoint is not None:
            found.append(
                Destination(
                    self.endpoint,
                    partial(otlp.span_exporter, self.endpoint),
                    partial(otlp.metric_exporter, self.endpoint),
                    log_exporter=partial(otlp.log_exporter, self.endpoint),
                )
            )
        return found

    def interval_ns(self, plan: Plan) -> dict[str, int]:
        """Return how often metrics go to each destination, ns; files hold fewer than other places."""
        found = {}
        if self.folder is not None:
            steps = max(1, math.ceil(plan.span_s / plan.step_s / _MOST_IN_FILES))
            found[str(self.folder)] = steps * plan.step_ns
        if self.endpoint is not None:
            found[self.endpoint] = plan.step_ns
        return found
