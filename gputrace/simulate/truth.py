"""What a simulation did, reckoned from what it launched, never from a number of the SDK."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from gputrace.simulate.plan import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

STATES = ("charged", "untracked", "idle", "unknown")


class Launched(NamedTuple):
    """Something that ran on a device.

    Attributes:
        start_ns: When, Unix time.
        end_ns: Until when.
        owners: Who is charged: features, with their weights.
        stage: Of which stage of a cascade it was, None for none.
        phases: Where it was a step of a model server, what each owner is charged for.
    """

    start_ns: int
    end_ns: int
    owners: tuple[tuple[str, int], ...]
    stage: str | None
    phases: tuple[str, ...] = ()


@dataclass
class Truth:
    """Sums over the whole simulation; those of several processes can be added up.

    Attributes:
        feature_s: Device time by feature.
        feature_cost: The same in money.
        state_ns: Time by device and state.
        state_cost: Money by state.
        stage_s: Device time by stage of a cascade.
        step_s: Of the device time, that of steps of a model server, by feature and phase: what each truly
            took of them.
        step_tokens: Tokens in such steps, by feature and kind.
        steps: Such steps, by model.
        calls: Tracked model calls by feature.
        requests: Requests by feature and status.
        decisions: Requests to cascades by cascade and decision.
        outcomes: Product events by name.
        units: Tokens by feature.
        energy_j: Energy by device.
    """

    feature_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    feature_cost: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    state_ns: Counter[tuple[str, str]] = field(default_factory=Counter)
    state_cost: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    stage_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    step_s: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    step_tokens: Counter[tuple[str, str]] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    decisions: Counter[tuple[str, str]] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    units: Counter[str] = field(default_factory=Counter)
    energy_j: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, other: Truth) -> None:
        """Add what another process did."""
        for name, mine in vars(self).items():
            for key, value in getattr(other, name).items():
                mine[key] += value

    def charge(
        self, launched: Iterable[Launched], price_at: Callable[[int], float], changes_ns: Sequence[int] = ()
    ) -> None:
        """Charge the features of one device: who holds it together shares it.

        Args:
            launched: All that ran on it.
            price_at: What it costs an hour at a moment, Unix time in ns.
            changes_ns: When that changes.
        """
        marks: list[tuple[int, int, Launched | None]] = [(at_ns, 0, None) for at_ns in changes_ns]
        for one in launched:
            marks += [(one.start_ns, 1, one), (one.end_ns, 0, one)]
        marks.sort(key=lambda mark: mark[:2])
        holding: dict[int, Launched] = {}
        before_ns = 0
        for at_ns, starts, mark in marks:
            if holding and at_ns > before_ns:
                self._share(holding.values(), before_ns, at_ns, price_at)
            if mark is not None and starts:
                holding[id(mark)] = mark
            elif mark is not None:
                del holding[id(mark)]
            before_ns = at_ns

    def _share(
        self, holding: Iterable[Launched], start_ns: int, end_ns: int, price_at: Callable[[int], float]
    ) -> None:
        held = list(holding)
        part_s = (end_ns - start_ns) / NS_PER_S / len(held)
        price = price_at(start_ns) / 3_600
        for one in held:
            whole = sum(weight for _, weight in one.owners)
            for at, (feature, weight) in enumerate(one.owners):
                self.feature_s[feature] += part_s * weight / whole
                self.feature_cost[feature] += part_s * weight / whole * price
                if one.phases:
                    self.step_s[feature, one.phases[at]] += part_s * weight / whole
            if one.stage is not None:
                self.stage_s[one.stage] += part_s

    def spend(self, device: str, split: dict[str, int], per_hour: float) -> None:
        """Count what a device's time went to.

        Args:
            device: ``hw.id``.
            split: ns by state.
            per_hour: What it costs.
        """
        for state, spent_ns in split.items():
            self.state_ns[device, state] += spent_ns
            self.state_cost[state] += spent_ns / NS_PER_S * per_hour / 3_600

    def state_s(self) -> dict[str, float]:
        """Return the time of all devices by state, s."""
        return {
            state: sum(spent for (_, of), spent in self.state_ns.items() if of == state) / NS_PER_S
            for state in STATES
        }
