"""The settings: what ``configure`` was told, else ``GPUTRACE_*`` variables, else defaults.

``settings_table`` describes each of them. A wrong value is refused once, at
start, by the name under which it was given.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gputrace.settings_table import (
    DEFAULT_DATA_DIRECTORY,
    DEFAULT_EXPORT_INTERVAL_S,
    DEFAULT_SET_LIMIT,
    DEFAULT_VALUE_LIMIT,
    SETTINGS,
    Setting,
)
from gputrace.settings_values import SettingError, url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gputrace.settings_budgets import Budget

__all__ = ["PRICE_VARIABLES", "SCOPE_VARIABLES", "SettingError", "Settings", "read", "scope"]

#: The variables that say what all work of a process is billed to, by field.
SCOPE_VARIABLES = {
    one.field: one.variable for one in SETTINGS if one.field in {"feature", "tenant"} and one.variable
}

#: Read by the price book itself.
PRICE_VARIABLES = ("GPUTRACE_PRICES", "GPUTRACE_NODE_PRICE")

_ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
_SIGNAL_ENDPOINT_VARIABLES = tuple(
    f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT" for signal in ("TRACES", "METRICS", "LOGS")
)


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
        set_limit: Sets of attributes kept of each metric.
        features: Features declared up front.
        models: Models declared up front.
        feature: Feature that work is billed to where nothing more explicit is said.
        tenant: Likewise.
        prices: Path of the price book; None leaves it to ``GPUTRACE_PRICES``.
        budgets: What features may spend in a month.
        outcomes: Product events that are shown even if none is recorded.
        hardware_metrics: Whether ``hw.*`` is shown; not where another exporter of the node already does.
        trusted_baggage: Entries of incoming baggage that may be believed; with ``baggage_keys``
            alone, all that are signed.
        trust: Asked with the ASGI scope of a request: True where its baggage is believed unsigned.
        baggage_keys: Keys that baggage is signed with; the first signs.
        agent: This is ``gputrace agent``.
        sends_spans: Whether an OTLP endpoint takes spans, here or by OpenTelemetry's variables.
        sends_metrics: Whether one takes metrics.
        sends_logs: Whether one takes log events.
        disabled: ``OTEL_SDK_DISABLED`` is set: nothing is recorded.
    """

    service_name: str | None = None
    endpoint: str | None = None
    data_directory: str | None = DEFAULT_DATA_DIRECTORY
    metric_attributes: tuple[str, ...] = ()
    export_interval_s: float = DEFAULT_EXPORT_INTERVAL_S
    value_limit: int = DEFAULT_VALUE_LIMIT
    set_limit: int = DEFAULT_SET_LIMIT
    features: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    feature: str | None = None
    tenant: str | None = None
    prices: str | None = None
    budgets: tuple[Budget, ...] = ()
    outcomes: tuple[str, ...] = ()
    hardware_metrics: bool = True
    trusted_baggage: tuple[str, ...] = ()
    trust: Callable[[Mapping[str, Any]], object] | None = None
    # Secrets: a settings object may be printed.
    baggage_keys: tuple[bytes, ...] = field(default=(), repr=False)
    agent: bool = False
    sends_spans: bool = False
    sends_metrics: bool = False
    sends_logs: bool = False
    disabled: bool = False


def read(*, environment: Mapping[str, str] | None = None, **given: object) -> Settings:
    """Return the settings in force.

    Args:
        environment: ``os.environ`` by default.
        **given: As given to ``configure``; None means not given.

    Raises:
        SettingError: A value cannot be used; the message names the setting.
        TypeError: There is no such setting.
    """
    unknown = given.keys() - {one.argument for one in SETTINGS}
    if unknown:
        raise TypeError(f"gputrace has no setting {', '.join(sorted(unknown))}")
    variables = os.environ if environment is None else environment
    found: dict[str, Any] = {}
    for setting in SETTINGS:
        if setting.field is not None and setting.field not in found:
            value = _value(setting, given, variables)
            if value is not None:
                found[setting.field] = value
    sends_spans, sends_metrics, sends_logs = _receivers(found.get("endpoint"), variables)
    if sends_spans and sends_metrics:
        # No files beside it, unless they are asked for.
        found.setdefault("data_directory", None)
    chosen = Settings(**found, sends_spans=sends_spans, sends_metrics=sends_metrics, sends_logs=sends_logs)
    _check_trust(chosen)
    return chosen


def scope(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what all work of this process is billed to where nothing more explicit is said, by field.

    Args:
        environment: ``os.environ`` by default.

    Raises:
        SettingError: A variable cannot be used; the message names it.
    """
    variables = os.environ if environment is None else environment
    found = {one.field: _value(one, {}, variables) for one in SETTINGS if one.field in SCOPE_VARIABLES}
    return {name: value for name, value in found.items() if name and value is not None}


def _value(setting: Setting, arguments: Mapping[str, object], variables: Mapping[str, str]) -> Any:
    """Return what was given for a setting, None for nothing. An empty variable is nothing."""
    if setting.argument is not None and setting.given is not None:
        given = arguments.get(setting.argument)
        if given is not None:
            return setting.given(setting.argument, given)
    if setting.variable is not None and setting.text is not None:
        text = variables.get(setting.variable)
        if text:
            return setting.text(setting.variable, text)
    return None


def _receivers(endpoint: str | None, variables: Mapping[str, str]) -> tuple[bool, bool, bool]:
    """Return whether an OTLP endpoint takes spans, metrics, and log events."""
    if endpoint is not None:
        return True, True, True
    every, *single = (
        bool(variables.get(name) and url(name, variables[name]))
        for name in (_ENDPOINT_VARIABLE, *_SIGNAL_ENDPOINT_VARIABLES)
    )
    spans, metrics, logs = (every or one for one in single)
    return spans, metrics, logs


def _check_trust(chosen: Settings) -> None:
    if chosen.trusted_baggage and chosen.trust is None and not chosen.baggage_keys:
        raise SettingError(
            f"trusted_baggage={chosen.trusted_baggage!r} says what may come in, and nobody is believed: give "
            "trust=, a function of the ASGI scope, or baggage_key= (GPUTRACE_BAGGAGE_KEY)"
        )
    if chosen.trust is not None and not chosen.trusted_baggage:
        raise SettingError(
            f"trust={chosen.trust!r} says who is believed, and nothing that may come in: give "
            "trusted_baggage=, such as ('gputrace.feature',)"
        )
