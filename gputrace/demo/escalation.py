"""What the demo knows of its cascade and production never sees: both answers to every request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gputrace.demo.models import Models
    from gputrace.demo.truth import Stopwatch

CASCADE = "digits"
AUDIT_RATE = 0.15


@dataclass(frozen=True, slots=True)
class Served:
    """One request that the cascade has answered.

    Attributes:
        example: Number of its image among the unseen ones.
        light_correct: The light model read it correctly.
        escalated: The heavy model was asked.
    """

    example: int
    light_correct: bool
    escalated: bool


@dataclass(slots=True)
class Desk:
    """What the service needs to score its answers, and notes of what it served.

    Attributes:
        numbers: Number of each unseen image by its pixels.
        labels: The digits that they show, by number.
        seed: Of the audits.
        audits: Runs while an audit does.
        served: All answers of the cascade.
    """

    numbers: Mapping[tuple[int, ...], int]
    labels: Sequence[int]
    seed: int
    audits: Stopwatch
    served: list[Served] = field(default_factory=list)

    @classmethod
    def over(cls, models: Models, seed: int, audits: Stopwatch) -> Desk:
        """Know the images that nobody has seen."""
        numbers = {example.pixels: number for number, example in enumerate(models.unseen)}
        return cls(numbers, [example.label for example in models.unseen], seed, audits)


def truth(
    models: Models, served: Sequence[Served], seconds: Mapping[str, float], answered: Mapping[str, int]
) -> dict[str, float]:
    """Return what ``gputrace payoff`` estimates, under its names; empty where nothing was served.

    Costs are seconds a request, by the driver's clocks; the features that ask one model
    alone were sent the same images.

    Args:
        models: Those that served.
        served: All answers of the cascade.
        seconds: What was spent on ``light`` and ``heavy`` alone, and on the ``cascade`` without its audits.
        answered: Requests to each of these.
    """
    if not served or not all(answered.get(name) for name in ("light", "heavy", "cascade")):
        return {}
    heavy_digits = models.heavy.digits(models.unseen)
    heavy = [heavy_digits[one.example] == models.unseen[one.example].label for one in served]
    light = [one.light_correct for one in served]
    final = [right if one.escalated else kept for one, kept, right in zip(served, light, heavy, strict=True)]
    light_cost, heavy_cost, cascade_cost = (
        seconds[name] / answered[name] for name in ("light", "heavy", "cascade")
    )
    count = len(served)
    return {
        "escalation_rate": sum(one.escalated for one in served) / count,
        "light_cost": light_cost,
        "cascade_cost": cascade_cost,
        "always_heavy_cost": heavy_cost,
        "savings_abs": heavy_cost - cascade_cost,
        "savings_frac": 1 - cascade_cost / heavy_cost,
        "quality_light": sum(light) / count,
        "quality_cascade": sum(final) / count,
        "quality_heavy": sum(heavy) / count,
        "quality_delta": (sum(final) - sum(heavy)) / count,
    }
