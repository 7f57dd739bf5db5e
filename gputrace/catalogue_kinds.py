"""What a metric is; see ``gputrace.catalogue``."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Kind(enum.Enum):
    """The instrument a metric is recorded with."""

    COUNTER = "counter"
    GAUGE = "gauge"
    UP_DOWN_COUNTER = "up_down_counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: what it is called, how it is counted, what it means.

    Attributes:
        name: OpenTelemetry name.
        kind: The instrument.
        unit: UCUM unit.
        description: What one unit of it means, for the reader of a board.
        attributes: The closed set of attribute names its points may carry.
        prometheus: The name under which Prometheus shows it, with the
            standard suffixes.
    """

    name: str
    kind: Kind
    unit: str
    description: str
    attributes: tuple[str, ...]
    prometheus: str
