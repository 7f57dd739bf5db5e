"""The settings: what ``configure`` was told, else ``GPUTRACE_*`` variables, else defaults.

A wrong value is refused once, at start, by the name under which it was given.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

METRIC_ATTRIBUTES_VARIABLE = "GPUTRACE_METRIC_ATTRIBUTES"
DATA_DIRECTORY_VARIABLE = "GPUTRACE_DATA_DIR"
EXPORT_INTERVAL_VARIABLE = "GPUTRACE_EXPORT_INTERVAL"
VALUE_LIMIT_VARIABLE = "GPUTRACE_ATTRIBUTE_VALUE_LIMIT"

DEFAULT_DATA_DIRECTORY = "gputrace-data"
DEFAULT_EXPORT_INTERVAL_S = 5.0
DEFAULT_VALUE_LIMIT = 200

OPT_IN_ATTRIBUTES = ("tenant",)

_ENDPOINT_VARIABLES = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
)


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
        sends_otlp: Whether an endpoint is configured, here or by OpenTelemetry's variables.
        disabled: ``OTEL_SDK_DISABLED`` is set: nothing is recorded.
    """

    service_name: str | None = None
    endpoint: str | None = None
    data_directory: str | None = DEFAULT_DATA_DIRECTORY
    metric_attributes: tuple[str, ...] = ()
    export_interval_s: float = DEFAULT_EXPORT_INTERVAL_S
    value_limit: int = DEFAULT_VALUE_LIMIT
    sends_otlp: bool = False
    disabled: bool = False


def read(  # noqa: PLR0913 - one argument a setting
    *,
    service_name: str | None = None,
    endpoint: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    metric_attributes: Sequence[str] | None = None,
    export_interval: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Return the settings in force.

    Args:
        service_name: As given to ``configure``; likewise the others.
        endpoint: Base URL of an OTLP/HTTP receiver.
        data_dir: Folder of the files.
        metric_attributes: Attributes on metrics beyond the defaults.
        export_interval: Time between two exports of metrics, s.
        environment: ``os.environ`` by default.

    Raises:
        SettingError: A value cannot be used; the message names the setting.
    """
    variables = os.environ if environment is None else environment
    sends_otlp = endpoint is not None or any(variables.get(name) for name in _ENDPOINT_VARIABLES)
    folder = str(data_dir) if data_dir is not None else variables.get(DATA_DIRECTORY_VARIABLE) or None
    if folder is None and not sends_otlp:
        folder = DEFAULT_DATA_DIRECTORY
    return Settings(
        service_name=service_name,
        endpoint=_checked_endpoint(endpoint),
        data_directory=folder,
        metric_attributes=_metric_attributes(metric_attributes, variables),
        export_interval_s=_export_interval(export_interval, variables),
        value_limit=_positive_int(variables, VALUE_LIMIT_VARIABLE, DEFAULT_VALUE_LIMIT),
        sends_otlp=sends_otlp,
        disabled=variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true",
    )


def _checked_endpoint(endpoint: str | None) -> str | None:
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        message = f"endpoint={endpoint!r} must be a URL that starts with http:// or https://"
        raise SettingError(message)
    return endpoint


def _metric_attributes(given: Sequence[str] | None, variables: Mapping[str, str]) -> tuple[str, ...]:
    name = "metric_attributes"
    if given is None:
        name = METRIC_ATTRIBUTES_VARIABLE
        given = [part.strip() for part in variables.get(name, "").split(",") if part.strip()]
    elif isinstance(given, str):
        message = f"metric_attributes={given!r} must be a sequence of names, such as ('tenant',)"
        raise SettingError(message)
    for value in given:
        if value not in OPT_IN_ATTRIBUTES:
            message = f"{name}: {value!r} is not an attribute that can be opted in; known: {', '.join(OPT_IN_ATTRIBUTES)}"
            raise SettingError(message)
    return tuple(given)


def _export_interval(given: float | None, variables: Mapping[str, str]) -> float:
    name, value = "export_interval", given
    if value is None:
        text = variables.get(EXPORT_INTERVAL_VARIABLE)
        # OpenTelemetry's own variable, in milliseconds, holds where ours is silent.
        standard = variables.get("OTEL_METRIC_EXPORT_INTERVAL")
        name = EXPORT_INTERVAL_VARIABLE if text else "OTEL_METRIC_EXPORT_INTERVAL"
        try:
            if text:
                value = float(text)
            else:
                value = float(standard) / 1000 if standard else DEFAULT_EXPORT_INTERVAL_S
        except ValueError:
            message = f"{name}={text or standard!r} is not a number"
            raise SettingError(message) from None
    if not 0.01 <= value < float("inf"):  # noqa: PLR2004 - ten milliseconds
        message = f"{name}={value!r} must be at least 0.01 seconds"
        raise SettingError(message)
    return value


def _positive_int(variables: Mapping[str, str], name: str, default: int) -> int:
    text = variables.get(name)
    if not text:
        return default
    if not text.strip().isdecimal() or int(text) < 1:
        message = f"{name}={text!r} must be a whole number of at least 1"
        raise SettingError(message)
    return int(text)
