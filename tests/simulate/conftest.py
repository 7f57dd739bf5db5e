"""Short simulations: half an hour of two GPUs, in one process and in this one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from gputrace.simulate import made_up
from gputrace.simulate.outputs import Outputs
from gputrace.simulate.plan import Plan
from gputrace.simulate.process import SimulatedProcess
from gputrace.simulate.running import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gputrace.simulate.truth import Truth
    from gputrace.telemetry.collecting import Collected

#: 2026-01-01T00:00:00Z
START_NS = 1_767_225_600_000_000_000
SHORT = Plan(START_NS, span_s=1_800, gpus=2, processes=1, step_s=30, requests=300, traced_requests=300)


#: Features whose requests share the steps of a model server: what each is charged of them is an estimate.
SERVED = ("code-completion", "code-review")


def served_as_one(by_feature: Mapping[str, float]) -> dict[str, float]:
    """What each feature is charged; of those that share steps, which is exact, their sum."""
    found = {name: value for name, value in by_feature.items() if value and not name.startswith(SERVED)}
    served = sum(value for name, value in by_feature.items() if name.startswith(SERVED))
    return {**found, "served": served} if served else found


class Played(NamedTuple):
    """A simulation that was written to files."""

    plan: Plan
    folder: Path
    truth: Truth


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("simulated") / "data"
    return Played(SHORT, folder, simulate(SHORT, Outputs(folder)))


class Watched(NamedTuple):
    """A simulation that was collected and not exported."""

    process: SimulatedProcess
    collected: list[tuple[int, Collected]]

    def values(self, metric: str) -> dict[tuple[str, ...], float]:
        """The last value of each series of a metric, by the values of its attributes."""
        return values(self.collected[-1][1], metric)


def values(collected: Collected, metric: str) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for one in collected.numbers:
        if one.metric.name == metric:
            for of in one.observations:
                found[tuple(str(value) for value in (of.attributes or {}).values())] = of.value
    return found


@pytest.fixture(scope="session")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Watched]:
    folder = tmp_path_factory.mktemp("prices")

    def watch(**changes: Any) -> Watched:
        plan = replace(SHORT, **changes)
        prices = made_up.write_prices(plan, folder / f"{len(list(folder.iterdir()))}.toml")
        process = SimulatedProcess(plan, 0, [], prices)
        return Watched(process, list(process.play()))

    return watch
