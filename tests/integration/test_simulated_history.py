"""A simulation's history in a real Prometheus: its sums are those of the files and of what was launched."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from gputrace import catalogue
from gputrace.analysis.reporting import spend_report
from gputrace.simulate.outputs import Outputs
from gputrace.simulate.plan import Plan
from gputrace.simulate.running import simulate
from tests.simulate.conftest import served_as_one

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.conftest import MetricServer

pytestmark = pytest.mark.requires("prometheus", "victoria-metrics")

#: Long past: whatever the server knows of the present must not matter.
START_NS = 1_767_225_600_000_000_000
S = 1_000_000_000
FEATURE = catalogue.FEATURE.replace(".", "_")
OF_PROCESSES = {"__name__", "job", "instance", "le", "gputrace_simulated", "deployment_environment_name"}
STATE = catalogue.DEVICE_STATE.replace(".", "_")


def test_its_sums_are_those_of_the_files(
    start_prometheus: Callable[..., MetricServer], tmp_path: Path
) -> None:
    server = start_prometheus(receives=True)
    plan = Plan(START_NS, span_s=3_600, gpus=2, processes=2, step_s=60, requests=250)
    truth = simulate(plan, Outputs(tmp_path / "data", remote_write=server.url))
    report = spend_report(tmp_path / "data", ("feature",), None, percentiles=False).to_json()
    end = str(plan.end_ns // S + 1)

    def by(label: str, metric: catalogue.Metric, asked: str = "sum by({}) ({})") -> dict[str, float]:
        rows = server.query(asked.format(label, metric.prometheus), time=end)
        return {labels[label]: value for labels, value in rows}

    charged = by(FEATURE, catalogue.FEATURE_TIME)
    # Calls that several features share are in a row of their own, and are charged to them.
    rows = [row for row in report["rows"] if row["feature"] != catalogue.SHARED]
    assert charged == pytest.approx({row["feature"]: row["charged_s"] for row in rows}, rel=1e-9)
    assert served_as_one(charged) == pytest.approx(served_as_one(truth.feature_s), rel=1e-5)
    assert by(FEATURE, catalogue.FEATURE_COST) == pytest.approx(
        {row["feature"]: row["cost"] for row in rows}, rel=1e-9
    )
    states = by(STATE, catalogue.DEVICE_TIME)
    assert states == pytest.approx(
        {state: report["totals"][f"{state}_s"] for state in catalogue.DEVICE_STATES}, rel=1e-9
    )
    assert states["unknown"] > 0
    # Counters begin at 0, so that nothing of them is missed.
    grown = by(
        FEATURE, catalogue.FEATURE_TIME, "sum by({0}) (max_over_time({1}[3h]) - min_over_time({1}[3h]))"
    )
    assert grown == pytest.approx(charged, rel=1e-9)


def test_every_series_is_named_by_the_catalogue_and_marked(
    start_prometheus: Callable[..., MetricServer],
) -> None:
    server = start_prometheus(receives=True)
    plan = Plan(START_NS, span_s=1_800, gpus=1, processes=1, step_s=60, requests=150)
    simulate(plan, Outputs(remote_write=server.url))
    end = str(plan.end_ns // S)
    everything = server.query('{job="simulated-service"}', time=end)
    known = {metric.prometheus: metric for metric in catalogue.METRICS}
    attributes = {name.replace(".", "_") for metric in catalogue.METRICS for name in metric.attributes}
    for labels, _ in everything:
        assert labels["gputrace_simulated"] == "true"
        name = labels["__name__"]
        if name == "target_info":
            continue
        for suffix in ("_bucket", "_sum", "_count"):
            name = name.removesuffix(suffix) if name.removesuffix(suffix) in known else name
        assert name in known
        assert (
            set(labels)
            - {"__name__", "job", "instance", "le", "gputrace_simulated", "deployment_environment_name"}
            <= attributes
        )
    unmarked = server.query('count({gputrace_simulated="",job="simulated-service"})', time=end)
    assert unmarked == []
    quantile = server.query(
        f"histogram_quantile(0.5, sum by (le) ({catalogue.CALL_DURATION.prometheus}_bucket))", time=end
    )
    assert 0 < quantile[0][1] < 60


def test_over_otlp_it_is_the_same(victoria: MetricServer) -> None:
    """What a server makes of it over OTLP: the names and values that remote write has."""
    start_ns = (time.time_ns() // S - 3_600) * S
    plan = Plan(start_ns, span_s=600, gpus=1, processes=1, step_s=60, requests=60)
    truth = simulate(plan, Outputs(endpoint=f"{victoria.url}/opentelemetry"))
    charged = victoria.query(
        f"sum by ({FEATURE}) ({catalogue.FEATURE_TIME.prometheus})", time=str(plan.end_ns // S + 1)
    )
    found = served_as_one({labels[FEATURE]: value for labels, value in charged})
    assert found == pytest.approx(served_as_one(truth.feature_s), rel=1e-5)
    marked = victoria.query(
        f'count({catalogue.DEVICE_TIME.prometheus}{{"gputrace.simulated"="true"}}) or '
        f'count({catalogue.DEVICE_TIME.prometheus}{{gputrace_simulated="true"}})',
        time=str(plan.end_ns // S + 1),
    )
    assert marked[0][1] == len(catalogue.DEVICE_STATES)
