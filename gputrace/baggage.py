"""Attribution across processes: what goes out in W3C baggage, and what of it is believed when it comes in.

Anybody can send a header. Nothing of it is believed unless the program says
who is: a predicate on the request, or a key that baggage is signed with. What
is not believed changes nothing and raises nothing; it is counted, and its
kind is logged once.
"""

from __future__ import annotations

import threading
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple

from gputrace import (
    attribution,
    baggage_header as header,
    baggage_signature as signature,
    catalogue,
    faults,
    settings,
)
from gputrace.baggage_header import UnbelievedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, MutableMapping

    from gputrace.attribution import Scope
    from gputrace.call import Call
    from gputrace.settings import Settings

NAME = "baggage"

UNDECLARED = "undeclared"
UNSIGNED = "unsigned"
REFUSED = "refused"

_WHY = {
    UNDECLARED: "nobody was declared to be believed (trusted_baggage, GPUTRACE_BAGGAGE_KEY)",
    UNSIGNED: "it is not signed, and this service believes signed baggage alone",
    REFUSED: "trust= did not return True for the request",
    signature.FORGED: "its signature is not of any of the keys in GPUTRACE_BAGGAGE_KEY",
    signature.EXPIRED: "its signature is too old; compare the clocks of the two machines",
    header.MALFORMED: "it is malformed",
    header.OVERSIZED: "it is too long",
}

#: Tells the time that signatures bear, s since 1970.
clock: Callable[[], float] = time

_READING = faults.contained("read baggage")
_ASKING = faults.contained("ask trust= about a request")
_WRITING = faults.contained("write baggage")


class _Policy(NamedTuple):
    """Who is believed, about what, and what is sent."""

    keys: tuple[bytes, ...]
    trust: Callable[[Mapping[str, Any]], object] | None
    #: Field by the name of its entry.
    taken: dict[str, str]
    sent: dict[str, str]


_ENTRIES = {name: field for field, name in attribution.ATTRIBUTE_OF_FIELD.items()}
_policy: _Policy | None = None
_counting = threading.RLock()
_unbelieved: dict[str, int] = {}


def use(chosen: Settings) -> None:
    """Believe and send as these settings say, from here on."""
    global _policy  # noqa: PLW0603 - one policy a process
    declared = chosen.trusted_baggage or (tuple(_ENTRIES) if chosen.baggage_keys else ())
    tenants = "tenant" in chosen.metric_attributes or catalogue.TENANT in chosen.trusted_baggage
    _policy = _Policy(
        keys=chosen.baggage_keys,
        trust=chosen.trust,
        taken={name: field for name, field in _ENTRIES.items() if name in declared},
        sent={name: field for name, field in _ENTRIES.items() if tenants or name != catalogue.TENANT},
    )


def _policy_in_force() -> _Policy:
    """Return the policy; in a process that never called ``configure``, what the variables say."""
    if _policy is None:
        try:
            use(settings.read())
        except settings.SettingError as error:
            faults.logger.error("gputrace believes no baggage: %s", error)
            use(settings.Settings())
    assert _policy is not None  # noqa: S101 - use() has set it
    return _policy


def reset() -> None:
    """Begin to count anew, as a forked child must."""
    global _counting  # noqa: PLW0603 - one lock a process
    _counting = threading.RLock()
    _unbelieved.clear()


def unbelieved() -> list[tuple[dict[str, str], int]]:
    """Return how many headers were not believed, by reason, as metric rows."""
    with _counting:
        return [({catalogue.LOSS_REASON: reason}, count) for reason, count in _unbelieved.items()]


def incoming(
    headers: Iterable[tuple[bytes, bytes]], scope: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Return what the baggage of a request says of it, as far as it is believed.

    It ranks below every explicit value, so that fields which the scope in force
    names already are left out: ``attribute_to(**incoming(headers, scope))``
    takes nothing away from whatever encloses it.

    Args:
        headers: Of the request, as ASGI has them.
        scope: The ASGI scope, which ``trust=`` is asked about; None where there is none.

    Returns:
        Fields (feature, tenant, model, variant, stage) and their values; empty where nothing is
        believed. Never raises.
    """
    with _READING:
        text = _joined(value for name, value in headers if name.lower() == b"baggage")
        if text:
            return attribution.unclaimed(_judged(text, scope), attribution.scope_in_force())
    return {}


def signed(values: Iterable[str]) -> dict[str, str]:
    """Return what signed baggage says, whoever sent it. What is not signed is not judged here.

    Args:
        values: The ``baggage`` headers.
    """
    text = ",".join(values)
    if signature.ENTRY not in text or not _policy_in_force().keys:
        return {}
    return _judged(text, None)


def _joined(values: Iterable[bytes]) -> str:
    """Return several headers as one, empty where none of their entries is ours."""
    raw = b",".join(values)
    # Latin-1 takes any byte. Those that no header may have are refused where the entries are read.
    return raw.decode("latin-1") if header.PREFIX.encode() in raw else ""


def _judged(text: str, scope: Mapping[str, Any] | None) -> dict[str, str]:
    policy = _policy_in_force()
    try:
        if not policy.taken:
            raise UnbelievedError(UNDECLARED)  # noqa: TRY301 - one place that counts
        entries = header.ours(text)
        _check(policy, entries, entries.pop(signature.ENTRY, None), scope)
    except UnbelievedError as refusal:
        _count(refusal.reason)
        return {}
    return {policy.taken[name]: value for name, value in entries.items() if name in policy.taken}


def _check(
    policy: _Policy, entries: dict[str, str], signed_with: str | None, scope: Mapping[str, Any] | None
) -> None:
    # A wrong signature is not believed from anyone: whoever is trusted without one need not send it.
    if policy.keys and signed_with is not None:
        fault = signature.fault_of(signed_with, entries, policy.keys, clock())
        if fault is not None:
            raise UnbelievedError(fault)
        return
    if policy.trust is None:
        raise UnbelievedError(UNSIGNED)
    if not _is_trusted(policy.trust, scope):
        raise UnbelievedError(REFUSED)


def _is_trusted(trust: Callable[[Mapping[str, Any]], object], scope: Mapping[str, Any] | None) -> bool:
    if scope is None:
        return False
    with _ASKING:
        # True alone: a coroutine that nobody awaits, or a match object, is true as well.
        return trust(scope) is True
    return False


def _count(reason: str) -> None:
    with _counting:
        _unbelieved[reason] = _unbelieved.get(reason, 0) + 1
    # Nothing of the header itself: it may hold anything.
    faults.log_once(
        f"baggage:{reason}",
        "gputrace ignored the baggage of a request: %s; later ones of this kind are only counted",
        _WHY[reason],
    )


def inject(carrier: MutableMapping[str, str]) -> None:
    """Put what the current work is billed to into the ``baggage`` header of a request that goes out.

    Signed where there is a key. Entries of others stay; those of gputrace that
    are there already go. The tenant is sent where it was opted in
    (``metric_attributes`` or ``trusted_baggage``). Never raises.

    Args:
        carrier: Headers: a dict, or ``httpx.Headers``.
    """
    with _WRITING:
        names = [name for name in carrier if name.lower() == NAME]
        text = outgoing(",".join(carrier[name] for name in names), attribution.scope_in_force())
        for name in names:
            del carrier[name]
        if text:
            carrier[names[0] if names else NAME] = text


def outgoing(text: str, scope: Scope | Call | None) -> str:
    """Return a ``baggage`` header that says what a scope is billed to.

    Args:
        text: The header so far, which may be empty.
        scope: The scope, None for none.
    """
    policy = _policy_in_force()
    entries = {} if scope is None else _sendable(policy, scope)
    if entries and policy.keys:
        entries[signature.ENTRY] = signature.signed(entries, policy.keys[0], int(clock()))
    made = header.written(text, entries)
    if made is None:
        faults.log_once(
            "baggage:full", "gputrace: a baggage header is full; what its work is billed to is not sent"
        )
        made = header.written(text, {})
    return made or ""


def _sendable(policy: _Policy, scope: Scope | Call) -> dict[str, str]:
    entries = {}
    for name, field in policy.sent.items():
        value = getattr(scope.attribution, field)
        if value is None or value.startswith(catalogue.RESERVED_PREFIX):
            continue
        if header.usable(value):
            entries[name] = value
        else:
            faults.log_once(
                f"baggage:{name}",
                "gputrace: %s=%.200r is not sent in baggage: it must have 1 to %d printable characters",
                name,
                value,
                header.MOST_CHARACTERS,
            )
    return entries
