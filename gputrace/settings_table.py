"""Every setting as data: its names, its default, what it means, how it is read.

``settings.read`` and the tables of the documentation follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputrace import settings_values as values
from gputrace.settings_budgets import read_budgets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputrace.settings_values import Reader

DEFAULT_DATA_DIRECTORY = "gputrace-data"
DEFAULT_EXPORT_INTERVAL_S = 5.0
DEFAULT_VALUE_LIMIT = 200
DEFAULT_SET_LIMIT = 1500


@dataclass(frozen=True)
class Setting:
    """One way to say something: an argument of ``configure``, a variable, or either.

    Attributes:
        field: What it sets of ``Settings``, None where it is read by the module that uses it. Of
            several settings of one field the first that was given holds.
        argument: Its name in ``configure``, which goes before the variable.
        variable: Its name in the environment.
        meaning: What it says, for the documentation.
        default: What holds without it, for the documentation; nothing where that is nothing.
        given: Reads the argument.
        text: Reads the variable; None where OpenTelemetry or another module does.
        common: The README shows it.
    """

    field: str | None
    argument: str | None
    variable: str | None
    meaning: str
    default: str = ""
    given: Reader | None = None
    text: Reader | None = None
    common: bool = True


SETTINGS = (
    Setting("service_name", "service_name", "OTEL_SERVICE_NAME", "`service.name`", given=values.text),
    Setting(
        "endpoint",
        "endpoint",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "base URL of an OTLP/HTTP receiver",
        given=values.url,
    ),
    Setting(
        "data_directory",
        "data_dir",
        "GPUTRACE_DATA_DIR",
        "folder of the files that `gputrace report` reads",
        f"`{DEFAULT_DATA_DIRECTORY}` unless an endpoint is set",
        given=values.path,
        text=values.path,
    ),
    Setting(
        "metric_attributes",
        "metric_attributes",
        "GPUTRACE_METRIC_ATTRIBUTES",
        "attributes on metrics beyond the defaults: `tenant`",
        given=values.opt_ins,
        text=values.opt_ins_text,
    ),
    Setting(
        "export_interval_s",
        "export_interval",
        "GPUTRACE_EXPORT_INTERVAL",
        "seconds between two exports of metrics",
        f"{DEFAULT_EXPORT_INTERVAL_S:g}",
        given=values.interval,
        text=values.interval_text,
    ),
    Setting(
        "export_interval_s",
        None,
        "OTEL_METRIC_EXPORT_INTERVAL",
        "the same in milliseconds, where the one above is not set",
        text=values.interval_text_ms,
        common=False,
    ),
    Setting(
        "prices",
        "prices",
        "GPUTRACE_PRICES",
        "price book, a TOML file: see `examples/prices.toml`",
        given=values.path,
    ),
    Setting(
        "budgets",
        "budgets",
        "GPUTRACE_BUDGETS",
        "what features may spend in a month, a TOML file: see `examples/budgets.toml`",
        given=read_budgets,
        text=read_budgets,
        common=False,
    ),
    Setting(
        None,
        None,
        "GPUTRACE_NODE_PRICE",
        "this node's own price, such as `2.49 USD` an hour, of its GPUs alone; beats the book",
    ),
    Setting(
        None,
        None,
        "GPUTRACE_NODE_DIR",
        "where the processes of a machine meet, which containers must share",
        "a folder of the user's in `/dev/shm`",
    ),
    Setting(
        "hardware_metrics",
        None,
        "GPUTRACE_HARDWARE_METRICS",
        "`false`: no `hw.*` metrics, where another exporter of the machine has them",
        "`true`",
        text=values.switch_text,
    ),
    Setting(
        "value_limit",
        None,
        "GPUTRACE_ATTRIBUTE_VALUE_LIMIT",
        "distinct values kept of each metric attribute, later ones become `__other__`",
        str(DEFAULT_VALUE_LIMIT),
        text=values.count_text,
    ),
    Setting(
        "set_limit",
        None,
        "GPUTRACE_ATTRIBUTE_SET_LIMIT",
        "sets of attributes that one metric may have; above it values fold into `__other__`",
        str(DEFAULT_SET_LIMIT),
        text=values.count_text,
        common=False,
    ),
    Setting(
        "features",
        "features",
        "GPUTRACE_FEATURES",
        "features declared up front: they keep their names whatever came before them",
        given=values.declared,
        text=values.declared_text,
        common=False,
    ),
    Setting(
        "models",
        "models",
        "GPUTRACE_MODELS",
        "models declared up front, likewise",
        given=values.declared,
        text=values.declared_text,
        common=False,
    ),
    Setting(
        "feature",
        None,
        "GPUTRACE_FEATURE",
        "feature that all work is billed to which nobody names; `gputrace run` sets it",
        text=values.name,
        common=False,
    ),
    Setting("tenant", None, "GPUTRACE_TENANT", "tenant, likewise", text=values.name, common=False),
    Setting(
        "outcomes",
        "outcomes",
        "GPUTRACE_OUTCOMES",
        "product events that reports show even if none is recorded",
        given=values.declared,
        text=values.declared_text,
    ),
    Setting(
        "baggage_keys",
        "baggage_key",
        "GPUTRACE_BAGGAGE_KEY",
        "secret that services share to sign baggage and to believe it; of several, separated by commas, the "
        "first signs",
        given=values.keys,
        text=values.keys,
    ),
    Setting(
        "trusted_baggage",
        "trusted_baggage",
        "GPUTRACE_TRUSTED_BAGGAGE",
        "entries of incoming baggage that may be believed, such as `gputrace.feature`",
        "none; all that is signed where there is a key",
        given=values.entries,
        text=values.entries_text,
        common=False,
    ),
    Setting(
        "trust",
        "trust",
        None,
        "function of the ASGI scope: `True` where baggage is believed without a signature",
        given=values.predicate,
        common=False,
    ),
    Setting(
        None,
        None,
        "OTEL_TRACES_SAMPLER",
        "OpenTelemetry's own variables hold; sampling never changes the report's totals",
    ),
    Setting("disabled", None, "OTEL_SDK_DISABLED", "`true`: nothing is recorded", text=values.disabled_text),
)


def markdown(*, common_only: bool = False) -> str:
    """Return the table of the settings, as the documentation shows it."""
    return "".join(f"{row}\n" for row in _rows(common_only=common_only))


def _rows(*, common_only: bool) -> Iterator[str]:
    yield "| `configure(…)` | variable | meaning |"
    yield "| --- | --- | --- |"
    for one in SETTINGS:
        if one.common or not common_only:
            meaning = f"{one.meaning}; {one.default}" if one.default else one.meaning
            cells = (f"`{name}`" if name else "" for name in (one.argument, one.variable))
            yield f"| {' | '.join(cells)} | {meaning} |".replace("|  |", "| |")
