"""The signature of what gputrace puts into baggage: an HMAC over all of its entries, and when it was made.

It keeps a client from billing somebody else's feature. It does not keep the
service that received it from sending it on, which is why it ages.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ENTRY = "gputrace.signature"

#: A signature is believed for so long, and so far ahead of this machine's clock, s.
LONGEST_AGE_S = 300
FARTHEST_AHEAD_S = 60

FORGED = "forged"
EXPIRED = "expired"

_VERSION = "1"
_FORM = re.compile(r"1\.([0-9]{1,12})\.([0-9a-f]{64})")


def signed(entries: Mapping[str, str], key: bytes, at_s: int) -> str:
    """Return the signature of these entries.

    Args:
        entries: Names and values, all that are sent.
        key: The secret.
        at_s: The time, s since 1970.
    """
    return f"{_VERSION}.{at_s}.{_digest(entries, key, str(at_s))}"


def fault_of(signature: str, entries: Mapping[str, str], keys: Sequence[bytes], now_s: float) -> str | None:
    """Return why a signature is not believed, None where it is.

    Args:
        signature: As it came in.
        entries: All entries that came with it, without it.
        keys: The secrets that are in use.
        now_s: The time, s since 1970.
    """
    import hmac

    form = _FORM.fullmatch(signature)
    if form is None:
        return FORGED
    at, digest = form.groups()
    # Every key is tried, and to its end: how long it takes tells nothing.
    right = [hmac.compare_digest(_digest(entries, key, at), digest) for key in keys]
    if not any(right):
        return FORGED
    if not -FARTHEST_AHEAD_S <= now_s - int(at) <= LONGEST_AGE_S:
        return EXPIRED
    return None


def _digest(entries: Mapping[str, str], key: bytes, at: str) -> str:
    # Here, since `import gputrace` needs none of it.
    import hmac

    # No name holds a `=` and no value a line break, so that two sets of entries never give one text.
    lines = (
        f"gputrace-baggage-{_VERSION}",
        at,
        *sorted(f"{name}={value}" for name, value in entries.items()),
    )
    return hmac.new(key, "\n".join(lines).encode(), "sha256").hexdigest()
