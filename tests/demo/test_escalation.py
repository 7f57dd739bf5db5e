"""What the demo knows of its cascade, and that its records say the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.requires("torch", "sklearn", "fastapi", "uvicorn", "httpx")


def models(heavy: list[int], labels: list[int]) -> Any:
    unseen = tuple(SimpleNamespace(pixels=(number,), label=label) for number, label in enumerate(labels))
    return SimpleNamespace(
        unseen=unseen, heavy=SimpleNamespace(digits=lambda examples: heavy[: len(examples)])
    )


def test_the_truth_is_that_of_both_answers_to_every_request() -> None:
    from gputrace.demo.escalation import Served, truth

    served = [
        Served(0, light_correct=True, escalated=False),
        Served(1, light_correct=False, escalated=True),
        Served(2, light_correct=False, escalated=False),
        Served(3, light_correct=True, escalated=True),
    ]
    seconds = {"light": 1.0, "heavy": 40.0, "cascade": 24.0}
    known = truth(models([0, 1, 2, 9], [0, 1, 2, 3]), served, seconds, dict.fromkeys(seconds, 4))
    assert known == {
        "escalation_rate": 0.5,
        "light_cost": 0.25,
        "cascade_cost": 6.0,
        "always_heavy_cost": 10.0,
        "savings_abs": 4.0,
        "savings_frac": pytest.approx(0.4),
        "quality_light": 0.5,
        "quality_cascade": 0.5,
        "quality_heavy": 0.75,
        "quality_delta": -0.25,
    }


def test_without_requests_nothing_is_known() -> None:
    from gputrace.demo.escalation import Served, truth

    assert truth(models([], []), [], {}, {}) == {}
    served = [Served(0, light_correct=True, escalated=False)]
    assert truth(models([0], [0]), served, {"light": 1.0}, {"light": 4}) == {}


def test_an_image_is_known_by_its_pixels() -> None:
    from gputrace.demo.escalation import Desk
    from gputrace.demo.truth import Stopwatch

    desk = Desk.over(models([], [7, 8]), 3, Stopwatch())
    assert [desk.labels[desk.numbers[pixels,]] for pixels in (0, 1)] == [7, 8]
