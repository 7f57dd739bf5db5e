"""How the value of a setting is read: from what ``configure`` was told, or from the text of a variable.

Each function takes the name under which the value was given, for the message,
and the value; it returns what the program uses, never None, or refuses it.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any

SHORTEST_EXPORT_INTERVAL_S = 0.01
#: A shorter key could be found by trying.
SHORTEST_KEY = 16

OPT_IN_ATTRIBUTES = ("tenant",)
#: What baggage may say of the work that it comes with; nothing else is ever taken from it.
BAGGAGE_ENTRIES = (
    "gputrace.feature",
    "gputrace.tenant",
    "gputrace.model",
    "gputrace.variant",
    "gputrace.stage",
)

Reader = Callable[[str, Any], Any]


class SettingError(ValueError):
    """A setting has a value that cannot be used."""


def text(name: str, given: object) -> str:
    """Return a text that is not empty."""
    if isinstance(given, str) and given.strip():
        return given
    raise SettingError(f"{name}={given!r} must be a text that is not empty")


def path(name: str, given: object) -> str:
    """Return a path as text."""
    return text(name, os.fspath(given) if isinstance(given, os.PathLike) else given)


def url(name: str, given: object) -> str:
    """Return the URL of an HTTP server."""
    scheme, separator, rest = given.partition("://") if isinstance(given, str) else ("", "", "")
    if scheme.lower() not in {"http", "https"} or not separator or not rest.strip("/ "):
        raise SettingError(f"{name}={given!r} must be a URL that starts with http:// or https://")
    return str(given)


def interval(name: str, given: object) -> float:
    """Return a time in s."""
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise SettingError(f"{name}={given!r} is not a number")
    return _checked_interval(name, given, given)


def interval_text(name: str, given: str) -> float:
    """Return a time in s."""
    return _checked_interval(name, given, _number(name, given))


def interval_text_ms(name: str, given: str) -> float:
    """Return a time in s that is given in ms."""
    return _checked_interval(name, given, _number(name, given) / 1000)


def _number(name: str, given: str) -> float:
    try:
        return float(given)
    except ValueError:
        raise SettingError(f"{name}={given!r} is not a number") from None


def _checked_interval(name: str, given: object, value_s: float) -> float:
    if not SHORTEST_EXPORT_INTERVAL_S <= value_s < float("inf"):
        raise SettingError(f"{name}={given!r} must come to at least {SHORTEST_EXPORT_INTERVAL_S} seconds")
    return float(value_s)


def count_text(name: str, given: str) -> int:
    """Return a whole number of at least 1."""
    # Longer ones are refused before int() is: it takes 4300 digits at most, and fails with words of its own.
    digits = given.strip()
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 9) or int(digits) < 1:  # noqa: PLR2004
        raise SettingError(f"{name}={given!r} must be a whole number of at least 1")
    return int(digits)


def switch_text(name: str, given: str) -> bool:
    """Return whether something is on."""
    word = given.strip().lower()
    if word not in {"", "true", "false"}:
        raise SettingError(f"{name}={given!r} must be true or false")
    return word != "false"


def disabled_text(name: str, given: str) -> bool:  # noqa: ARG001 - OpenTelemetry refuses no value of this one
    """Return whether OpenTelemetry's SDK is off."""
    return given.strip().lower() == "true"


def _names(name: str, given: object, example: str) -> tuple[Any, ...]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise SettingError(f"{name}={given!r} must be a sequence of names, such as ({example!r},)")
    return tuple(dict.fromkeys(given))


def _listed(given: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in given.split(",") if part.strip())


def opt_ins(name: str, given: object) -> tuple[str, ...]:
    """Return attributes that go on metrics beyond the defaults."""
    names = _names(name, given, "tenant")
    for value in names:
        if value not in OPT_IN_ATTRIBUTES:
            known = ", ".join(OPT_IN_ATTRIBUTES)
            raise SettingError(f"{name}: {value!r} is not an attribute that can be opted in; known: {known}")
    return names


def opt_ins_text(name: str, given: str) -> tuple[str, ...]:
    """Return attributes that go on metrics beyond the defaults."""
    return opt_ins(name, _listed(given))


def declared(name: str, given: object) -> tuple[str, ...]:
    """Return names of features or models, each once."""
    names = _names(name, given, "search")
    for value in names:
        if not isinstance(value, str) or not value.strip():
            raise SettingError(f"{name}: {value!r} must be a text that is not empty")
        if value.startswith("__"):
            raise SettingError(f"{name}: {value!r} starts with '__', which is reserved; choose another name")
    return names


def declared_text(name: str, given: str) -> tuple[str, ...]:
    """Return names of features or models, each once."""
    return declared(name, _listed(given))


def name(setting: str, given: str) -> str:
    """Return what work is billed to."""
    return str(declared(setting, (given,))[0])


def entries(name: str, given: object) -> tuple[str, ...]:
    """Return the entries of baggage that may be believed."""
    names = _names(name, given, BAGGAGE_ENTRIES[0])
    for value in names:
        if value not in BAGGAGE_ENTRIES:
            known = ", ".join(BAGGAGE_ENTRIES)
            raise SettingError(f"{name}: {value!r} is not an entry that baggage may bring; known: {known}")
    return names


def entries_text(name: str, given: str) -> tuple[str, ...]:
    """Return the entries of baggage that may be believed."""
    return entries(name, _listed(given))


def predicate(name: str, given: object) -> Callable[..., object]:
    """Return a function that is asked about each request."""
    if not callable(given):
        raise SettingError(
            f"{name}={given!r} must be a function of the ASGI scope that returns True or False"
        )
    # What it returns is a coroutine, and nobody would await it.
    if inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(type(given).__call__):
        raise SettingError(f"{name}={given!r} must not be async: it is asked before a request begins")
    return given


def keys(name: str, given: object) -> tuple[bytes, ...]:
    """Return the keys that baggage is signed with; no message ever shows one."""
    if not isinstance(given, str):
        raise SettingError(f"{name} must be a text: a key, or several separated by commas")
    found = tuple(key.encode("utf-8", "backslashreplace") for key in _listed(given))
    if not found:
        raise SettingError(f"{name} holds no key")
    for key in found:
        if len(key) < SHORTEST_KEY:
            raise SettingError(
                f"{name}: a key of {len(key)} bytes is too short; take at least {SHORTEST_KEY}, such as what "
                "`openssl rand -hex 32` prints"
            )
    return found
