"""Who bears the cost of idle devices: the policies of a report."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from gputrace.prices_billing import spread_idle

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gputrace.analysis.devices import Device


class Bearer(Protocol):
    """A group of calls that a report has a row for.

    Attributes:
        kind: `hw.type`.
        costs: Parts of its cost by currency.
    """

    kind: str
    costs: dict[str, list[float]]


def spread(groups: Iterable[Bearer], devices: Iterable[Device], policy: str) -> dict[str, float]:
    """Add idle cost to the groups as the policy says: by currency and type of device, neither of which mix.

    Untracked and unknown time are never spread. Idle cost that no group is there to bear stays where it is.

    Args:
        groups: Those of the report, whose costs are changed.
        devices: The devices, whose costs stay as they are.
        policy: One of `prices_billing.IDLE_POLICIES`.

    Returns:
        What the groups bear now, by currency; empty where the policy spreads nothing.
    """
    borne: dict[str, float] = {}
    if policy not in {"even", "weighted"}:
        return borne
    groups = tuple(groups)
    for (kind, currency), idle in _idle(devices).items():
        bearers = [one for one in groups if one.kind == kind and currency in one.costs]
        busy = {
            number: sum(map(Fraction, one.costs[currency]), Fraction(0)) for number, one in enumerate(bearers)
        }
        costs, left = spread_idle(policy, busy, idle)
        for number, one in enumerate(bearers):
            one.costs[currency] = [float(costs[number])]
        borne[currency] = borne.get(currency, 0.0) + float(idle - left)
    return borne


def notes(policy: str, borne: Mapping[str, float]) -> Iterable[str]:
    """Yield a sentence about what the rows' costs hold or lack because of the policy."""
    if policy == "none":
        yield "The cost of idle time is left out (--idle none): the rest is not all that the devices cost."
    for currency, cost in sorted(borne.items()):
        how = "in equal parts" if policy == "even" else "by the cost of their charged time"
        yield f"The rows bear {cost:,.4f} {currency} of idle time, {how} (--idle {policy})."


def _idle(devices: Iterable[Device]) -> dict[tuple[str, str], Fraction]:
    idle: dict[tuple[str, str], Fraction] = {}
    for device in devices:
        for currency, states in device.costs.items():
            key = (device.type or "?", currency)
            idle[key] = idle.get(key, Fraction(0)) + Fraction(states.get("idle", 0.0))
    return idle
