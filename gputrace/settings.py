"""The settings: what ``configure`` was told, else ``GPUTRACE_*`` variables, else defaults.

A wrong value is refused once, at start, by the name under which it was given.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

METRIC_ATTRIBUTES_VARIABLE = "GPUTRACE_METRIC_ATTRIBUTES"
DATA_DIRECTORY_VARIABLE = "GPUTRACE_DATA_DIR"
EXPORT_INTERVAL_VARIABLE = "GPUTRACE_EXPORT_INTERVAL"
HARDWARE_METRICS_VARIABLE = "GPUTRACE_HARDWARE_METRICS"
VALUE_LIMIT_VARIABLE = "GPUTRACE_ATTRIBUTE_VALUE_LIMIT"

DEFAULT_DATA_DIRECTORY = "gputrace-data"
DEFAULT_EXPORT_INTERVAL_S = 5.0
SHORTEST_EXPORT_INTERVAL_S = 0.01
DEFAULT_VALUE_LIMIT = 200

#: Read by the price book itself.
PRICE_VARIABLES = ("GPUTRACE_PRICES", "GPUTRACE_NODE_PRICE")

OPT_IN_ATTRIBUTES = ("tenant",)

_ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
_SPANS_ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_METRICS_ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
_STANDARD_INTERVAL_VARIABLE = "OTEL_METRIC_EXPORT_INTERVAL"


class SettingError(ValueError):
    """A setting has a value that cannot be used."""


@dataclass(frozen=True)
class Settings:
    """All settings of a process.

    Attributes:
        service_name: ``service.name``; None leaves it to the OpenTelemetry variables.
        endpoint: Base URL of an OTLP/HTTP receiver; None leaves it to those variables.
        data_directory: Folder of the embedded default; None writes no files.
        metric_attributes: Attributes on metrics beyond the defaults.
        export_interval_s: Time between two exports of metrics, s.
        value_limit: Distinct values kept of each metric attribute.
        prices: Path of the price book; None leaves it to ``GPUTRACE_PRICES``.
        hardware_metrics: Whether ``hw.*`` is shown; not where another exporter of the node already does.
        agent: This is ``gputrace agent``.
        sends_spans: Whether an OTLP endpoint takes spans, here or by OpenTelemetry's variables.
        sends_metrics: Whether one takes metrics.
        disabled: ``OTEL_SDK_DISABLED`` is set: nothing is recorded.
    """

    service_name: str | None = None
    endpoint: str | None = None
    data_directory: str | None = DEFAULT_DATA_DIRECTORY
    metric_attributes: tuple[str, ...] = ()
    export_interval_s: float = DEFAULT_EXPORT_INTERVAL_S
    value_limit: int = DEFAULT_VALUE_LIMIT
    prices: str | None = None
    hardware_metrics: bool = True
    agent: bool = False
    sends_spans: bool = False
    sends_metrics: bool = False
    disabled: bool = False


def read(  # noqa: PLR0913 - one argument a setting
    *,
    service_name: str | None = None,
    endpoint: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    metric_attributes: Sequence[str] | None = None,
    export_interval: float | None = None,
    prices: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Return the settings in force.

    Args:
        service_name: As given to ``configure``; likewise the others.
        endpoint: Base URL of an OTLP/HTTP receiver.
        data_dir: Folder of the files.
        metric_attributes: Attributes on metrics beyond the defaults.
        export_interval: Time between two exports of metrics, s.
        prices: Path of the price book.
        environment: ``os.environ`` by default.

    Raises:
        SettingError: A value cannot be used; the message names the setting.
    """
    variables = os.environ if environment is None else environment
    sends_spans, sends_metrics = _receivers(endpoint, variables)
    return Settings(
        service_name=_text("service_name", service_name),
        endpoint=_url("endpoint", endpoint),
        data_directory=_folder(data_dir, variables, needed=not (sends_spans and sends_metrics)),
        metric_attributes=_metric_attributes(metric_attributes, variables),
        export_interval_s=_export_interval(export_interval, variables),
        prices=None if prices is None else str(prices),
        hardware_metrics=_switch(variables, HARDWARE_METRICS_VARIABLE),
        value_limit=_positive_int(variables, VALUE_LIMIT_VARIABLE, DEFAULT_VALUE_LIMIT),
        sends_spans=sends_spans,
        sends_metrics=sends_metrics,
        disabled=variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true",
    )


def _text(name: str, given: object) -> str | None:
    if given is None or (isinstance(given, str) and given.strip()):
        return given
    raise SettingError(f"{name}={given!r} must be a text that is not empty")


def _url(name: str, given: object) -> str | None:
    if given is None:
        return None
    scheme, separator, rest = given.partition("://") if isinstance(given, str) else ("", "", "")
    if scheme.lower() not in {"http", "https"} or not separator or not rest.strip("/ "):
        raise SettingError(f"{name}={given!r} must be a URL that starts with http:// or https://")
    return str(given)


def _receivers(endpoint: object, variables: Mapping[str, str]) -> tuple[bool, bool]:
    """Return whether an OTLP endpoint takes spans, and metrics."""
    if endpoint is not None:
        return True, True
    names = (_ENDPOINT_VARIABLE, _SPANS_ENDPOINT_VARIABLE, _METRICS_ENDPOINT_VARIABLE)
    both, spans, metrics = (bool(_url(name, variables.get(name) or None)) for name in names)
    return both or spans, both or metrics


def _folder(given: object, variables: Mapping[str, str], *, needed: bool) -> str | None:
    if given is not None:
        return _text("data_dir", os.fspath(given) if isinstance(given, os.PathLike) else given)
    return variables.get(DATA_DIRECTORY_VARIABLE) or (DEFAULT_DATA_DIRECTORY if needed else None)


def _metric_attributes(given: object, variables: Mapping[str, str]) -> tuple[str, ...]:
    name = "metric_attributes"
    if given is None:
        name = METRIC_ATTRIBUTES_VARIABLE
        given = [part.strip() for part in variables.get(name, "").split(",") if part.strip()]
    elif isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise SettingError(f"{name}={given!r} must be a sequence of names, such as ('tenant',)")
    names = tuple(given)
    for value in names:
        if value not in OPT_IN_ATTRIBUTES:
            known = ", ".join(OPT_IN_ATTRIBUTES)
            raise SettingError(f"{name}: {value!r} is not an attribute that can be opted in; known: {known}")
    return names


def _export_interval(given: object, variables: Mapping[str, str]) -> float:
    if given is not None:
        if isinstance(given, bool) or not isinstance(given, (int, float)):
            raise SettingError(f"export_interval={given!r} is not a number")
        return _checked_interval("export_interval", given, given)
    text = variables.get(EXPORT_INTERVAL_VARIABLE)
    if text:
        return _checked_interval(EXPORT_INTERVAL_VARIABLE, text, _number(EXPORT_INTERVAL_VARIABLE, text))
    # OpenTelemetry's own variable, in milliseconds, holds where ours is silent.
    text = variables.get(_STANDARD_INTERVAL_VARIABLE)
    if text:
        value = _number(_STANDARD_INTERVAL_VARIABLE, text) / 1000
        return _checked_interval(_STANDARD_INTERVAL_VARIABLE, text, value)
    return DEFAULT_EXPORT_INTERVAL_S


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SettingError(f"{name}={text!r} is not a number") from None


def _checked_interval(name: str, given: object, value_s: float) -> float:
    if not SHORTEST_EXPORT_INTERVAL_S <= value_s < float("inf"):
        raise SettingError(f"{name}={given!r} must come to at least {SHORTEST_EXPORT_INTERVAL_S} seconds")
    return float(value_s)


def _switch(variables: Mapping[str, str], name: str) -> bool:
    text = variables.get(name, "").strip().lower()
    if text not in {"", "true", "false"}:
        raise SettingError(f"{name}={variables[name]!r} must be true or false")
    return text != "false"


def _positive_int(variables: Mapping[str, str], name: str, default: int) -> int:
    text = variables.get(name)
    if not text:
        return default
    if not text.strip().isdecimal() or int(text) < 1:
        raise SettingError(f"{name}={text!r} must be a whole number of at least 1")
    return int(text)
