"""The text of a W3C ``baggage`` header: which of its entries are ours, and what they say.

A header comes from anybody: whatever it holds, reading it costs little and
either gives all entries of ours, each of them well formed, or refuses them all.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_plus

from gputrace.catalogue import RESERVED_PREFIX

PREFIX = "gputrace."

#: Limits of W3C Baggage: bytes of a header, entries in it.
MOST_BYTES = 8192
MOST_ENTRIES = 180
#: Our own: entries of ours, characters of a value.
MOST_OF_OURS = 16
MOST_CHARACTERS = 128

MALFORMED = "malformed"
OVERSIZED = "oversized"

_BLANKS = " \t"
_NAME = re.compile(r"gputrace\.[a-z0-9_.]{1,64}")
_ENCODED = re.compile(r"(?:[!#-$&-+\--:<-\[\]-~]|%[0-9A-Fa-f]{2})*")


class UnbelievedError(ValueError):
    """Baggage that is not believed.

    Args:
        reason: Why, as it is counted.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def is_ours(entry: str) -> bool:
    """Tell whether an entry is one of gputrace's."""
    return entry.strip().startswith(PREFIX)


def usable(value: str) -> bool:
    """Tell whether a value may travel: short, printable, and not one of gputrace's own rows."""
    return (
        0 < len(value) <= MOST_CHARACTERS
        and value.isprintable()
        and value.strip() == value
        and not value.startswith(RESERVED_PREFIX)
    )


def ours(header: str) -> dict[str, str]:
    """Return the entries of gputrace in a header, decoded.

    Raises:
        UnbelievedError: The header or an entry of ours is too long or malformed, or there twice.
    """
    if len(header) > MOST_BYTES:
        raise UnbelievedError(OVERSIZED)
    entries = header.split(",")
    mine = [entry.partition(";")[0] for entry in entries if is_ours(entry)]
    if len(entries) > MOST_ENTRIES or len(mine) > MOST_OF_OURS:
        raise UnbelievedError(OVERSIZED)
    found: dict[str, str] = {}
    for entry in mine:
        name, separator, value = entry.partition("=")
        # Blanks and tabs alone: what else Python takes for white space makes a name malformed.
        name = name.strip(_BLANKS)
        if not separator or not _NAME.fullmatch(name) or name in found:
            raise UnbelievedError(MALFORMED)
        found[name] = _decoded(value.strip(_BLANKS))
    return found


def _decoded(encoded: str) -> str:
    if not _ENCODED.fullmatch(encoded):
        raise UnbelievedError(MALFORMED)
    try:
        # As OpenTelemetry for Python does, which passes headers on and writes a space as a plus.
        value = unquote_plus(encoded, errors="strict")
    except UnicodeDecodeError:
        raise UnbelievedError(MALFORMED) from None
    if len(value) > MOST_CHARACTERS:
        raise UnbelievedError(OVERSIZED)
    if not usable(value):
        raise UnbelievedError(MALFORMED)
    return value


def written(header: str, entries: dict[str, str]) -> str | None:
    """Return a header with these entries of ours and those of others that it had.

    Args:
        header: What is there already. Entries of ours in it go: nobody knows where they came from.
        entries: Names and usable values.

    Returns:
        The header, None where it would be longer than others accept.
    """
    kept = [entry.strip() for entry in header.split(",") if entry.strip() and not is_ours(entry)]
    added = [f"{name}={quote(value, safe='')}" for name, value in entries.items()]
    text = ",".join((*kept, *added))
    if added and (len(text) > MOST_BYTES or len(kept) + len(added) > MOST_ENTRIES):
        return None
    return text
