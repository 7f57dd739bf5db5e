"""The service under observation: three product features over two models.

This is what an instrumented application looks like: the functions that run a model
carry ``track``, the endpoints say on behalf of which feature they call them. The
stopwatches alone are no part of it: they belong to the driver, which checks the report.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

from fastapi import Body, FastAPI

import gputrace
from gputrace.demo.escalation import AUDIT_RATE, CASCADE, Served

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gputrace.demo.escalation import Desk
    from gputrace.demo.models import Models, Reading
    from gputrace.demo.truth import Stopwatch

SCAN_PREVIEW = "scan-preview"
ARCHIVE_AUDIT = "archive-audit"
FORM_ENTRY = "form-entry"
FEATURES = (SCAN_PREVIEW, ARCHIVE_AUDIT, FORM_ENTRY)

LIGHT_MODEL = "digits-linear"
HEAVY_MODEL = "digits-cnn-ensemble"
ESCALATE_BELOW = 0.7

# One scanned digit, row by row: 0 is paper and 16 is ink.
Pixels = Annotated[list[int], Body(embed=True, min_length=64, max_length=64)]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the service read, and whether the heavy model was asked as well."""

    digit: int
    confidence: float
    escalated: bool = False


class Readers:
    """The two models behind tracked calls."""

    def __init__(self, models: Models) -> None:
        """Serve these models."""
        self._models = models

    # The driver's clock is read inside the tracked call, as close to its ends as can be:
    # what the SDK does before and after is charged to nobody, and takes up to a third of
    # the time of a light call. Even a `with` block here would show, in that other threads
    # get their turn wherever a Python function begins.
    @gputrace.track(operation="read", model=LIGHT_MODEL, stage="light")
    def light(self, pixels: Sequence[int], stopwatch: Stopwatch) -> Reading:
        """Read with the light model."""
        began = perf_counter()
        reading = self._models.light.read(pixels)
        stopwatch.total_s += perf_counter() - began
        return reading

    @gputrace.track(operation="read", model=HEAVY_MODEL, stage="heavy")
    def heavy(self, pixels: Sequence[int], stopwatch: Stopwatch) -> Reading:
        """Read with the heavy model."""
        began = perf_counter()
        reading = self._models.heavy.read(pixels)
        stopwatch.total_s += perf_counter() - began
        return reading


def create_service(models: Models, stopwatches: Mapping[str, Stopwatch], desk: Desk) -> FastAPI:
    """Build the application.

    Args:
        models: What answers.
        stopwatches: The driver's, one for each feature.
        desk: Knows the right answers.
    """
    readers = Readers(models)
    digits = gputrace.Cascade(
        CASCADE,
        stages=("light", "heavy"),
        threshold=ESCALATE_BELOW,
        # Stages and audits hold nothing themselves: the tracked calls inside them do.
        hold="none",
        audit_rate=AUDIT_RATE,
        seed=desk.seed,
    )
    app = FastAPI(title="Digits", openapi_url=None)

    # Endpoints are coroutines although the models block: on one or two cores a pool of
    # threads would have the requests fight for the GIL, and the time of a model call on
    # the host would mostly be the waiting for it.
    async def scan_preview(pixels: Pixels) -> Answer:
        """Show at once what a scan probably says."""
        with gputrace.attribute_to(feature=SCAN_PREVIEW):
            return _answer(readers.light(pixels, stopwatches[SCAN_PREVIEW]))

    async def archive_audit(pixels: Pixels) -> Answer:
        """Read as well as this service can, whatever it costs."""
        with gputrace.attribute_to(feature=ARCHIVE_AUDIT):
            return _answer(readers.heavy(pixels, stopwatches[ARCHIVE_AUDIT]))

    async def form_entry(pixels: Pixels) -> Answer:
        """Read with the light model, and again with the heavy one where that is unsure."""
        stopwatch, number = stopwatches[FORM_ENTRY], desk.numbers[tuple(pixels)]

        def score(reading: Reading, stage: str) -> bool:
            correct = reading.digit == desk.labels[number]
            gputrace.score(request.id, correct, "correct", stage=stage)
            return correct

        # A coroutine, so that it takes its turn in the loop: as work of another thread it would
        # fight with the requests for the GIL.
        async def audit() -> None:
            score(readers.heavy(pixels, desk.audits), "heavy")

        with digits.request(feature=FORM_ENTRY) as request:
            with request.stage("light"):
                reading = readers.light(pixels, stopwatch)
            correct = score(reading, "light")
            escalated = request.escalate(reading.confidence, audit=audit)
            if escalated:
                with request.stage("heavy"):
                    reading = readers.heavy(pixels, stopwatch)
                score(reading, "heavy")
        desk.served.append(Served(number, light_correct=correct, escalated=escalated))
        return _answer(reading, escalated=escalated)

    for feature, endpoint in zip(FEATURES, (scan_preview, archive_audit, form_entry), strict=True):
        app.post(f"/{feature}")(endpoint)
    return app


def _answer(reading: Reading, *, escalated: bool = False) -> Answer:
    return Answer(digit=reading.digit, confidence=reading.confidence, escalated=escalated)
