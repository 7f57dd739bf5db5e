"""Where a simulation goes: files, an OTLP receiver, the history of a Prometheus."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gputrace import identity
from gputrace.exporters import file, otlp
from gputrace.simulate.plan import PlanError
from gputrace.telemetry.delivery import Destination

if TYPE_CHECKING:
    from collections.abc import Iterator
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
        truth: File that is told what happened.
    """

    folder: Path | None = None
    endpoint: str | None = None
    remote_write: str | None = None
    events: Path | None = None
    truth: Path | None = None

    def check(self) -> None:
        """Refuse what cannot be written, before anything is played.

        Raises:
            PlanError: There are files in the folder already: two simulations in one would be added up. Or
                something cannot be written to; names it.
        """
        with contextlib.ExitStack() as tried:
            if self.folder is not None:
                tried.enter_context(_made(self.folder))
                if any(self.folder.glob("*.jsonl")):
                    raise PlanError(
                        f"{self.folder} holds files already, and a report would add up what is in them: give "
                        "--data another folder, or remove them"
                    )
            if self.truth is not None:
                _try_file(self.truth)

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


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Refuse a folder that cannot be written to; one that was not there is there within the block alone."""
    missing = [one for one in (folder, *folder.parents) if not os.path.lexists(one)]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise PlanError(f"--data {folder} cannot be written to: {error.strerror or error}") from error
        yield
    finally:
        for one in missing:
            with contextlib.suppress(OSError):
                one.rmdir()


def _try_file(path: Path) -> None:
    """Refuse a file that cannot be written; what is in it stays until there is something to write."""
    missing = not os.path.lexists(path)
    try:
        with path.open("a"):
            pass
        if missing:
            path.unlink()
    except OSError as error:
        raise PlanError(f"--truth {path} cannot be written: {error.strerror or error}") from error
