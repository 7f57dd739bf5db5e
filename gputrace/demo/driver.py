"""Runs the demo's service through its life and measures it from outside.

A start, real load, a pause in which nothing runs, a model run that nobody tracks: the
lengths of the last two are known beforehand, everything else the driver measures with
clocks of its own (:mod:`gputrace.demo.truth`).
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import gputrace
from gputrace.demo import escalation
from gputrace.demo.folder import SERVICE_NAME
from gputrace.demo.hosting import Application, Hosting
from gputrace.demo.service import ARCHIVE_AUDIT, FEATURES, FORM_ENTRY, SCAN_PREVIEW, create_service
from gputrace.demo.truth import DriverClock, Truth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from gputrace.demo.models import Models

START = "start"
LOAD = "load"
PAUSE = "pause"
UNTRACKED = "untracked run"
STOP = "stop"

# Short, so that a demo that is killed leaves what it measured until a second before.
EXPORT_INTERVAL_S = 1.0
LOAD_END_S = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What the demo will do.

    Attributes:
        data: Folder for the data, empty of others' records.
        requests: How many requests are sent, to all features together.
        seed: Decides their order.
        pause_s: How long nothing runs.
        untracked_s: How long the heavy model runs with nobody tracking it.
    """

    data: Path
    requests: int
    seed: int
    pause_s: float
    untracked_s: float


@dataclass(frozen=True, slots=True)
class Tally:
    """What the clients saw of one feature."""

    answered: int = 0
    correct: int = 0
    escalated: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the demo did.

    Attributes:
        truth: The driver's measurement.
        tallies: The clients' results by feature.
        interrupted: It was stopped before its end.
        escalation: What the demo knows of its cascade, under the names of ``gputrace payoff``, which
            stands beside the intervals.
    """

    truth: Truth
    tallies: Mapping[str, Tally]
    interrupted: bool
    escalation: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Everything, in plain types."""
        tallies = {feature: asdict(tally) for feature, tally in self.tallies.items()}
        return {
            **self.truth.as_json(),
            "requests": tallies,
            "escalation": dict(self.escalation),
            "interrupted": self.interrupted,
        }


class ServiceFailedError(RuntimeError):
    """The service, or the process that sends the requests, failed."""


def drive(plan: Plan, models: Models, say: Callable[[str], None]) -> Outcome:
    """Run the service through its life, between ``configure()`` and ``shutdown()``.

    Args:
        plan: What to do.
        models: Trained models. Training comes before ``configure()`` because the window
            of the report is the life of the service, which begins with ready models.
        say: Told what comes next.
    """
    clock = DriverClock(FEATURES)
    driver = _Driver(plan, models, clock, say)
    interrupted = False
    with _sigterm_as_interrupt():
        gputrace.configure(service_name=SERVICE_NAME, data_dir=plan.data, export_interval=EXPORT_INTERVAL_S)
        # A report's window begins with the first reading, which configure() takes when all is
        # set up: before, it loads OpenTelemetry, for longer than the tolerance allows.
        clock.begin(START)
        try:
            driver.run()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            clock.end()
            gputrace.shutdown()
    return Outcome(
        clock.truth(on_gpu=models.on_gpu, audited=FORM_ENTRY),
        driver.tallies,
        interrupted,
        driver.escalation(),
    )


class _Driver:
    """The phases of one run."""

    def __init__(self, plan: Plan, models: Models, clock: DriverClock, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._models = models
        self._clock = clock
        self._say = say
        self._desk = escalation.Desk.over(models, plan.seed, clock.audits)
        self.tallies: dict[str, Tally] = {}

    def escalation(self) -> dict[str, float]:
        """Return what is known of the cascade."""
        alone = {"light": SCAN_PREVIEW, "heavy": ARCHIVE_AUDIT, "cascade": FORM_ENTRY}
        return escalation.truth(
            self._models,
            self._desk.served,
            {name: self._clock.stopwatches[feature].total_s for name, feature in alone.items()},
            {name: self.tallies.get(feature, Tally()).answered for name, feature in alone.items()},
        )

    def run(self) -> None:
        service = create_service(self._models, self._clock.stopwatches, self._desk)
        with Hosting(_sliced(service, self._clock)) as hosting:
            self._clock.begin(LOAD)
            self._say(f"{self._plan.requests} requests from another process to {hosting.url}")
            self._load(hosting.url)
            gputrace.Cascade.wait_for_audits()
            self._clock.begin(PAUSE)
            self._say(f"{self._plan.pause_s:g} s pause: nothing runs")
            time.sleep(self._plan.pause_s)
            self._clock.begin(UNTRACKED)
            self._say(f"{self._plan.untracked_s:g} s of the heavy model, called without tracking it")
            self._run_untracked()
            self._clock.begin(STOP)

    def _load(self, url: str) -> None:
        command = [sys.executable, "-m", "gputrace.demo.load", "--url", url]
        command += ["--requests", str(self._plan.requests), "--seed", str(self._plan.seed)]
        for feature in FEATURES:
            command += ["--feature", feature]
        examples = json.dumps([(example.pixels, example.label) for example in self._models.unseen])
        # In a session of its own, Ctrl-C reaches the driver alone, which then asks for what there is.
        clients = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            answer, _ = clients.communicate(examples)
        except KeyboardInterrupt:
            self._count(_stop(clients))
            raise
        if clients.returncode:
            message = f"the load generator failed with exit status {clients.returncode}"
            raise ServiceFailedError(message)
        self._count(answer)

    def _count(self, answer: str) -> None:
        tallies: dict[str, dict[str, Any]] = json.loads(answer or "{}")
        self.tallies = {feature: Tally(**tally) for feature, tally in tallies.items()}

    def _run_untracked(self) -> None:
        began = time.perf_counter()
        try:
            while time.perf_counter() - began < self._plan.untracked_s:
                self._models.heavy.read(self._models.unseen[0].pixels)
        finally:
            self._clock.planted.total_s += time.perf_counter() - began


def _stop(clients: subprocess.Popen[str]) -> str:
    clients.terminate()
    try:
        answer, _ = clients.communicate(timeout=LOAD_END_S)
    except subprocess.TimeoutExpired:
        clients.kill()
        answer, _ = clients.communicate()
    return answer


def _sliced(service: Application, clock: DriverClock) -> Application:
    """Let the driver's clock cut the load into slices, always between two requests' model calls."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        clock.cut_when_due()
        await service(scope, receive, send)

    return application


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
