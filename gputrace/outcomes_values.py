"""What may be counted: names and amounts come with requests, and must not fail them."""

from __future__ import annotations

import numbers
from typing import Any

from gputrace import faults
from gputrace.attribution import tolerated_fields

#: More at once is a mistake, and more than metrics can carry without rounding.
LARGEST = 1e15
_NAMES_LIMIT = 1024

_valid_names: set[str] = set()


def checked_name(where: str, name: Any) -> str | None:
    """Return a name as a string, None with one log line where it is none."""
    if name.__class__ is str and name in _valid_names:
        return str(name)
    text = tolerated_fields({"name": "" if name is None else name}, where).get("name")
    if not text:
        if text is not None:
            faults.log_once(f"{where}:no-name", "%s: a name must not be empty; ignored", where)
        return None
    if name.__class__ is str:
        if len(_valid_names) >= _NAMES_LIMIT:
            _valid_names.clear()
        # As every exporter can encode it, and so equal to what was given.
        if text == name:
            _valid_names.add(text)
    return text


def checked_amount(where: str, name: str | None, value: Any) -> float | None:
    """Return an amount, None with one log line where it is none."""
    amount: float
    if value.__class__ is int or value.__class__ is float:
        amount = value
    else:
        # A tensor could be made a number too, and would wait for its device.
        amount = float(value) if isinstance(value, numbers.Real) else -1.0
    if 0 <= amount <= LARGEST:
        return amount
    # Nobody asks a foreign object for its text: that may be long, or fail.
    shown = f"{amount:g}" if isinstance(value, float) else f"a {type(value).__name__}"
    faults.log_once(
        f"{where}:value",
        "%s: the amount of %r, %s, is no number from 0 to %g; ignored. Give an int or a float",
        where,
        name,
        shown,
        LARGEST,
    )
    return None
