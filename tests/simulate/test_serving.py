"""The simulated model server in the report: all its numbers, and how near they are to the truth."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gputrace import catalogue
from gputrace.analysis.reporting import spend_report
from gputrace.simulate import made_up, model_server
from gputrace.simulate.demand import draw, lost_ns
from gputrace.simulate.outputs import Outputs
from gputrace.simulate.process import SimulatedProcess
from gputrace.simulate.running import simulate
from tests.simulate.conftest import SERVED, SHORT, Played

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.simulate.conftest import Watched

#: What the SDK says of a feature's share of a server's time is at most so far off, as a part of 1.
OFF = 0.01


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Enough steps to learn from; without the features that come behind those that are served."""
    incidents = frozenset({"failures", "loss"})
    plan = replace(
        SHORT, requests=1_200, features=5, incidents=incidents, tenants=True, traced_requests=1, step_s=300
    )
    folder = tmp_path_factory.mktemp("served") / "data"
    return Played(plan, folder, simulate(plan, Outputs(folder)))


@pytest.fixture(scope="module")
def server(served: Played) -> dict[str, Any]:
    report = spend_report(served.folder, ("feature",), None, percentiles=False).to_json()
    (found,) = report["model_servers"]
    return found  # type: ignore[no-any-return]


def test_steps_and_tokens_are_what_was_launched(served: Played, server: dict[str, Any]) -> None:
    assert {server["model"]: server["steps"]} == served.truth.steps
    assert server["steps"] > 500
    assert 2 < server["sequences"] < 16
    told = {
        (one["feature"], kind): count for one in server["features"] for kind, count in one["tokens"].items()
    }
    assert told == served.truth.step_tokens
    for feature in SERVED:
        for kind in ("prefill", "decode", "cached"):
            assert told[feature, kind] > 0
    assert sum(count for (_, kind), count in told.items() if kind == "recomputed") > 0
    assert server["recomputed_s"] > 0
    assert server["cached_s"] > 0
    assert server["cost"] > 0


def test_the_time_of_all_steps_is_what_they_took(served: Played, server: dict[str, Any]) -> None:
    assert server["charged_s"] == pytest.approx(sum(served.truth.step_s.values()), rel=1e-6)
    charged = {one["feature"]: one["charged_s"] for one in server["features"]}
    assert sum(charged.values()) == pytest.approx(server["charged_s"])


def test_shares_are_near_the_truth(served: Played, server: dict[str, Any]) -> None:
    """Constants weigh first, and learnt weights then: neither knows what a step truly takes."""
    whole_s = sum(served.truth.step_s.values())
    for one in server["features"]:
        for phase in ("prefill", "decode"):
            truth = served.truth.step_s[one["feature"], phase] / whole_s
            assert one[f"{phase}_s"] / server["charged_s"] == pytest.approx(truth, abs=OFF)
    assert 0 < server["constants_share"] < 1


def test_weights_are_learnt_and_are_the_truth(server: dict[str, Any]) -> None:
    """In the proportion of the truth: how long all of it takes follows from the number of requests."""
    truth = dict(
        zip(
            catalogue.STEP_COEFFICIENTS,
            (
                model_server.FIXED_S,
                model_server.PREFILL_S,
                model_server.DECODE_S,
                model_server.CONTEXT_S,
                model_server.PAIRS_S,
            ),
            strict=True,
        )
    )
    learnt = {one["coefficient"]: one for one in server["weights"] if one["regime"] == "all"}
    assert learnt.keys() == truth.keys()
    slower = learnt["fixed"]["value_s"] / truth["fixed"]
    for name, one in learnt.items():
        assert one["version"] > 0
        assert one["steps"] > 0
        assert 0 < one["residual"] < 2 * model_server.NOISE
        off = abs(one["value_s"] / slower - truth[name]) / truth[name]
        assert off < 4 * one["error_s"] / one["value_s"] + 0.01, name


def test_tenants_share_a_feature_s_time(server: dict[str, Any]) -> None:
    of_tenants: dict[str, float] = {}
    for one in server["tenants"]:
        of_tenants[one["feature"]] = of_tenants.get(one["feature"], 0.0) + one["charged_s"]
    assert of_tenants == pytest.approx({one["feature"]: one["charged_s"] for one in server["features"]})
    assert len({one["tenant"] for one in server["tenants"]}) > 2


def test_features_meet_in_the_same_steps(watch: Callable[..., Watched]) -> None:
    shown = watch(requests=200, features=5)
    calls = shown.values(catalogue.CALLS.name)
    shared = sum(value for of, value in calls.items() if catalogue.SHARED in of)
    assert shared == shown.process.truth.calls[catalogue.SHARED] > 0


def test_a_server_that_loses_its_gpu_answers_nobody(tmp_path: Path) -> None:
    """Requests that it serves fail, and so do those that come later: nothing waits for ever."""
    plan = replace(SHORT, processes=2, features=5, requests=400, incidents=frozenset({"loss"}))
    process = SimulatedProcess(plan, 1, [], made_up.write_prices(plan, tmp_path / "prices.toml"))
    list(process.play())
    ended = dict.fromkeys(("ok", "error"), 0)
    for (feature, status), count in process.truth.requests.items():
        if feature in SERVED:
            ended[status] += count
    later = [one for one in draw(plan, 1).asked if one.feature.name in SERVED]
    later = [one for one in later if one.at_ns > (lost_ns(plan) or 0)]
    assert 0 < ended["error"] <= len(later) + 16
    assert ended["ok"] > 0
