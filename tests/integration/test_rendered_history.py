"""Every board over a week, empty, of one feature and of 200: `make render`, which leaves the pictures."""

from __future__ import annotations

import functools
import os
import shutil
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gputrace import catalogue
from gputrace.analysis.payoff_reports import Asked, payoff_report
from gputrace.grafana.output import boards
from tests.integration.conftest import prometheus
from tests.integration.history import START_S, History, play
from tests.integration.rendering import draw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tests.integration.conftest import MetricServer, Servers
    from tests.integration.rendering import Drawn

    Serve = Callable[[], AbstractContextManager[tuple[MetricServer, Path]]]

pytestmark = [
    pytest.mark.render,
    pytest.mark.requires("prometheus", "render"),
    pytest.mark.timeout(3_000),
]

HOUR_S, DAY_S = 3_600, 86_400
NAMES = [board.uid for board in boards()]
BOARDS = {board.uid: board for board in boards()}
#: Where everything went well, and where there is nothing to compare with: both are said.
WELL = {
    "Alerts that fire",
    "Records lost an hour",
    "Calls that could not be timed, an hour",
    "Device time without a price",
    "Baggage that was not believed, an hour",
}
NOTHING_BEFORE = {"Against the range before", "Greatest increases (USD)", "Why spend changed (USD)"}
FEW_AUDITS = {"Heavy alone (USD)", "A request costs less by"}
CROWDED = {"Busy while it held a device alone"}
#: Metrics show tenants where they are asked to.
TENANTS = {"Tenants"}


@pytest.fixture(scope="module")
def pictures() -> Path:
    """Where the pictures stay: `GPUTRACE_PICTURES`, else build/boards."""
    folder = Path(os.environ.get("GPUTRACE_PICTURES", "build/boards")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def serve(
    servers: Servers, tmp_path_factory: pytest.TempPathFactory, unused_tcp_port_factory: Callable[[], int]
) -> Serve:
    @contextmanager
    def served() -> Iterator[tuple[MetricServer, Path]]:
        folder = tmp_path_factory.mktemp("history")
        with prometheus(servers["prometheus"], folder, unused_tcp_port_factory(), receives=True) as server:
            yield server, folder / "data"
        # Gigabytes.
        shutil.rmtree(folder)

    return served


@pytest.fixture(scope="module", params=[15, 60], ids=["every 15 s", "every 60 s"])
def week(request: pytest.FixtureRequest, serve: Serve) -> Iterator[History]:
    with serve() as (server, folder):
        yield play(server, folder, 7 * DAY_S, gpus=4, step_s=request.param, requests=20_000)


@pytest.fixture(scope="module")
def drawn(week: History, renderer: Path, pictures: Path) -> Callable[[str], Drawn]:
    """The whole of the week on a board, drawn once."""

    @functools.cache
    def draw_once(uid: str) -> Drawn:
        folder = pictures / f"week-{week.plan.step_s}"
        folder.mkdir(exist_ok=True)
        every_s = week.plan.step_s
        return draw(renderer, week.server.url, BOARDS[uid], week.range_s, folder, every_s=every_s)

    return draw_once


@pytest.mark.parametrize("uid", NAMES)
def test_nothing_is_missing_where_there_was_something_before(
    week: History, renderer: Path, pictures: Path, uid: str
) -> None:
    folder = pictures / f"days-{week.plan.step_s}"
    folder.mkdir(exist_ok=True)
    end_s = START_S + 7 * DAY_S
    board = draw(
        renderer,
        week.server.url,
        BOARDS[uid],
        (end_s - 3 * DAY_S, end_s),
        folder,
        every_s=week.plan.step_s,
    )
    assert board.without_data() <= (TENANTS if uid == "gputrace-servers" else WELL)


def test_spend_is_what_the_report_says(week: History, drawn: Callable[[str], Drawn]) -> None:
    board, costs = drawn("gputrace-spend"), week.cost_by_feature()
    assert board.number("Spend in range (USD)") == pytest.approx(sum(costs.values()), rel=0.01)
    assert board.values("Share of spend (USD)") == pytest.approx(costs, rel=0.01)
    states = {state: week.report["totals"][f"{state}_s"] for state in catalogue.DEVICE_STATES}
    idle = states["idle"] / sum(states.values())
    assert board.number("Idle share of the bill") == pytest.approx(idle, rel=0.01)


def test_unit_costs_are_what_the_report_says(week: History, drawn: Callable[[str], Drawn]) -> None:
    costs, requests = week.cost_by_feature(), dict.fromkeys(week.cost_by_feature(), 0)
    for (feature, _), count in week.truth.requests.items():
        requests[feature] += count
    expected = {name: 1_000 * cost / requests[name] for name, cost in costs.items()}
    shown = drawn("gputrace-spend").values("Cost of 1 000 requests (USD)")
    assert shown == pytest.approx(expected, rel=0.01)


def test_escalation_is_what_was_decided(week: History, drawn: Callable[[str], Drawn]) -> None:
    decided = week.truth.decisions
    escalated = sum(count for (_, decision), count in decided.items() if decision == "escalated")
    shown = drawn("gputrace-escalation").number("Requests escalated")
    assert shown == pytest.approx(escalated / decided.total(), rel=0.01)
    rows = payoff_report(week.folder, Asked()).rows
    reported = sum(row.requests * row.estimates["escalation_rate"].value for row in rows)
    assert shown == pytest.approx(reported / sum(row.requests for row in rows), rel=0.01)


@pytest.mark.parametrize("uid", NAMES)
def test_an_empty_database_says_so_everywhere(
    start_prometheus: Callable[..., MetricServer], renderer: Path, tmp_path: Path, uid: str
) -> None:
    range_s = (START_S, START_S + 6 * HOUR_S)
    board = draw(renderer, start_prometheus().url, BOARDS[uid], range_s, tmp_path, empty=True)
    assert board.without_data() == set(board.panels)


@pytest.mark.parametrize("features", [1, 200])
def test_few_features_and_many(serve: Serve, renderer: Path, pictures: Path, features: int) -> None:
    folder = pictures / f"features-{features}"
    folder.mkdir(exist_ok=True)
    with serve() as (server, data):
        history = play(server, data, 6 * HOUR_S, step_s=60, features=features, requests=4_000)
        for uid, board in BOARDS.items():
            # Of what is now there is nothing an hour later.
            found = draw(renderer, server.url, board, (START_S, START_S + 6 * HOUR_S), folder)
            # One feature has no batch, say; many have all, and some device always several of them.
            if features > 1:
                empty = found.without_data()
                assert empty <= WELL | NOTHING_BEFORE | FEW_AUDITS | CROWDED | TENANTS, uid
            if uid == "gputrace-spend":
                assert len(found.values("Share of spend (USD)")) == min(features, 11)
                assert len(found.values("Cost of 1 000 requests (USD)")) == min(features, 20)
        costs = history.cost_by_feature()
        assert len(costs) == features


def test_model_servers_and_their_tenants(serve: Serve, renderer: Path, pictures: Path) -> None:
    folder = pictures / "tenants"
    folder.mkdir(exist_ok=True)
    with serve() as (server, data):
        asked = {"gpus": 2, "step_s": 60, "requests": 6_000, "tenants": True}
        truth = play(server, data, DAY_S, **asked).truth
        range_s = START_S, START_S + DAY_S
        board = draw(renderer, server.url, BOARDS["gputrace-servers"], range_s, folder)
    assert board.without_data() == set()
    hours = sum(truth.step_s.values()) / HOUR_S
    assert board.number("Device hours of steps") == pytest.approx(hours, rel=0.01)
    on_prompts = sum(took for (_, phase), took in truth.step_s.items() if phase == "prefill") / HOUR_S
    assert board.number("Time on prompts") == pytest.approx(on_prompts / hours, rel=0.02)
    tokens = Counter[str]()
    for (_, kind), count in truth.step_tokens.items():
        tokens[kind] += count
    cached = tokens["cached"] / (tokens["cached"] + tokens["prefill"])
    assert board.number("From the cache") == pytest.approx(cached, rel=0.01)
    assert board.number("Computed twice") == pytest.approx(tokens["recomputed"] / tokens["prefill"], rel=0.01)
