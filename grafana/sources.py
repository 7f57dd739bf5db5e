"""What a query may read: the metrics of the catalogue, and the series that rules record from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputrace import catalogue

if TYPE_CHECKING:
    from gputrace.catalogue import Metric

#: Labels that Prometheus makes of the resource: `service.name` becomes `job`, the others are as they are
#: where they are promoted (`promote_resource_attributes`), else absent.
JOB = "job"
INSTANCE = "instance"
ENVIRONMENT = "deployment.environment.name"
SERVICE_VERSION = "service.version"
RESOURCE = (JOB, ENVIRONMENT)

#: Labels of its own: the upper bound of a histogram's bucket, and the name of an alert and its state.
BUCKET = "le"
ALERT_LABELS = ("alertname", "alertstate", "severity")


class UnknownNameError(ValueError):
    """A query asks for a metric or a label that gputrace does not emit."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A series that a rule records.

    Attributes:
        name: Its name: level, metric, operation.
        expr: What it records.
        labels: Names of the attributes it keeps.
        metrics: Names of the metrics that it is made of, as Prometheus shows them.
        unit: UCUM unit of its values.
        sums: Of a rate: by how much it grew in each window, recorded once a window; that of fewest series
            first.
    """

    name: str
    expr: str
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    unit: str
    sums: tuple[Recorded, ...] = ()


def label(attribute: str) -> str:
    """Return the name under which Prometheus shows an attribute."""
    return attribute.replace(".", "_")


def labels(*attributes: str) -> str:
    """Return attributes as a list in PromQL."""
    return ", ".join(map(label, attributes))


def known_labels(source: Metric | Recorded) -> frozenset[str]:
    """Return the labels that a series of the source may have, as Prometheus shows them."""
    if isinstance(source, Recorded):
        return frozenset(map(label, source.labels))
    own = {label(attribute) for attribute in (*source.attributes, *RESOURCE, INSTANCE)}
    return frozenset(own | {BUCKET} if source.kind is catalogue.Kind.HISTOGRAM else own)


def name_of(source: Metric | Recorded) -> str:
    """Return the name under which Prometheus shows the source.

    Raises:
        UnknownNameError: The catalogue does not hold the metric.
    """
    if isinstance(source, Recorded):
        return source.name
    if source not in catalogue.METRICS:
        raise UnknownNameError(f"{source.name} is not in gputrace.catalogue: nothing emits it")
    return source.prometheus
