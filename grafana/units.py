"""Units of panels, colours of states, and the thresholds that mean something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gputrace import catalogue


@dataclass(frozen=True, slots=True)
class Unit:
    """How Grafana writes a number.

    Attributes:
        id: Grafana's name of the unit.
        decimals: Digits after the point; None leaves it to Grafana.
    """

    id: str
    decimals: int | None = None


# Grafana has no unit that follows a variable: the currency stands in the title.
MONEY = Unit("locale", 2)
# What one request or one event costs, often a fraction of a cent.
SMALL_MONEY = Unit("locale", 4)
# What one of the currency buys, often millions.
FOR_MONEY = Unit("short", 2)
SECONDS = Unit("s")
HOURS = Unit("suffix: h", 1)
# Of steps, of which there may be minutes or months.
STEP_HOURS = Unit("suffix: h")
SHARE = Unit("percentunit", 1)
# Errors of shares, mostly below a thousandth: Grafana finds the digits.
SHARE_ERROR = Unit("percentunit")
COUNT = Unit("short")
WHOLE = Unit("locale", 0)
PER_SECOND = Unit("suffix:/s")
PER_HOUR = Unit("suffix:/h", 1)
WATTS = Unit("watt")
JOULES = Unit("joule")
BYTES = Unit("bytes")
CELSIUS = Unit("celsius")
SCORE = Unit("none", 3)
INFO = Unit("none", 0)

GREEN, YELLOW, ORANGE, RED = "green", "yellow", "orange", "red"
BLUE, PURPLE, GREY = "blue", "purple", "#8e8e8e"

#: A state has one colour on every board.
STATE_COLOURS = dict(zip(catalogue.DEVICE_STATES, (GREEN, ORANGE, "#5c7fa8", GREY), strict=True))
STATUS_COLOURS = dict(zip(catalogue.CALL_STATUSES, (GREEN, RED, GREY), strict=True))
DECISION_COLOURS = dict(zip(catalogue.ESCALATION_DECISIONS, (BLUE, ORANGE, PURPLE), strict=True))
# What people call the stages of a cascade; other names get a colour of the palette.
STAGE_COLOURS = {"small": BLUE, "light": BLUE, "large": ORANGE, "heavy": ORANGE, "audit": PURPLE}
QUANTILE_COLOURS = {"p50": GREEN, "p95": YELLOW, "p99": ORANGE}
PHASE_COLOURS = dict(zip(catalogue.STEP_PHASES, (BLUE, ORANGE, GREY), strict=True))
KIND_COLOURS = dict(zip(catalogue.STEP_KINDS, (BLUE, ORANGE, GREEN, RED), strict=True))
BOUND_COLOURS = dict(zip(catalogue.ESCALATION_BOUNDS, (GREY, BLUE, GREY), strict=True))

Steps = tuple[tuple[float | None, str], ...]
#: A number on its own is neither good nor bad.
NEUTRAL: Steps = ((None, BLUE),)
IDLE_STEPS: Steps = ((None, GREEN), (0.3, YELLOW), (0.5, RED))
COVERAGE_STEPS: Steps = ((None, RED), (0.95, YELLOW), (0.99, GREEN))
BALANCE_STEPS: Steps = ((None, GREEN), (0.01, YELLOW), (0.05, RED))
BUDGET_STEPS: Steps = ((None, GREEN), (0.8, YELLOW), (1.0, RED))
GROWTH_STEPS: Steps = ((None, GREEN), (0.25, YELLOW), (1.0, RED))
# From what the weights may be off by, beyond which documented constants weigh.
RESIDUAL_STEPS: Steps = ((None, GREEN), (0.15, YELLOW), (0.25, RED))
SHARE_ERROR_STEPS: Steps = ((None, GREEN), (0.025, YELLOW), (0.1, RED))
FAULT_STEPS: Steps = ((None, GREEN), (1e-9, RED))
# What is not known is neither.
SAVING_STEPS: Steps = ((None, "text"), (-1e9, RED), (0.0, GREEN))
BUSY_STEPS: Steps = ((None, "#5c7fa8"), (0.3, YELLOW), (0.6, GREEN), (0.95, ORANGE))


def thresholds(steps: Steps) -> dict[str, Any]:
    """Return steps as Grafana wants them."""
    return {"mode": "absolute", "steps": [{"color": colour, "value": value} for value, colour in steps]}
