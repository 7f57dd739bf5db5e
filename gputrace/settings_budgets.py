"""Budgets: a TOML file of what each feature may spend in a calendar month.

[[budget]]
feature = "support-answer"
currency = "USD"
per_month = 2500
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from gputrace.settings_values import SettingError, path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_KEYS = {"feature", "currency", "per_month"}
_CURRENCY = re.compile("[A-Z]{3}")


class Budget(NamedTuple):
    """What a feature may spend in a calendar month.

    Attributes:
        feature: The feature.
        currency: ISO 4217.
        per_month: Amount in it.
    """

    feature: str
    currency: str
    per_month: float


def read_budgets(name: str, given: object) -> tuple[Budget, ...]:
    """Return what the file says.

    Args:
        name: What the setting is called.
        given: Path of the file.

    Raises:
        SettingError: The file cannot be used; names file, entry and key.
    """
    file = Path(path(name, given))
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"{name}: {file}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise SettingError(f"{name}: {file}: {error}") from error
    entries = found.get("budget")
    if set(found) - {"budget"} or not isinstance(entries, list):
        raise SettingError(f"{name}: {file} must hold [[budget]] entries and nothing else")
    budgets = tuple(_budget(f"{name}: {file}: budget {number}", one) for number, one in enumerate(entries, 1))
    twice = {(one.feature, one.currency) for one in budgets}
    if len(twice) < len(budgets):
        raise SettingError(f"{name}: {file} has two budgets of one feature in one currency")
    return budgets


def _budget(where: str, values: Any) -> Budget:
    given = set(values) if isinstance(values, dict) else set()
    if given != _KEYS:
        wrong = [f"{key} is missing" for key in sorted(_KEYS - given)]
        wrong += [f"{key!r} is none of them" for key in sorted(given - _KEYS)]
        keys = ", ".join(sorted(_KEYS))
        raise SettingError(f"{where}: must have the keys {keys}, and no others: {', '.join(wrong)}")
    feature, currency, amount = values["feature"], values["currency"], values["per_month"]
    if not isinstance(feature, str) or not feature.strip():
        raise SettingError(f"{where}: feature: {feature!r} must be the name of a feature")
    if not isinstance(currency, str) or not _CURRENCY.fullmatch(currency):
        raise SettingError(f"{where}: currency: {currency!r} must be a code of ISO 4217, such as USD")
    if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not 0 < amount < float("inf"):
        raise SettingError(f"{where}: per_month: {amount!r} must be a number above 0")
    return Budget(feature, currency, float(amount))
