"""How long the panels of a board take, asked as Grafana asks them."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scale.server import Prometheus

HOUR_S, DAY_S = 3_600, 86_400
#: Ranges, each with the step that Grafana takes for a panel of some 700 pixels.
STEPS_S = {DAY_S: 120, 7 * DAY_S: 900, 30 * DAY_S: 3_600}
_SCRAPED_S = 60
_ALL = dict.fromkeys(("$environment", "$job", "$feature", "$hw_name", "$cascade"), ".*")
_EVERYTHING = _ALL | {"$currency": "USD", "$hw_type": "gpu"}


class Panel(NamedTuple):
    """A panel of a board.

    Attributes:
        title: Its title.
        targets: Its queries, as they stand in the board.
    """

    title: str
    targets: list[dict[str, Any]]


def panels_of(board: dict[str, Any]) -> Iterator[Panel]:
    """Yield the panels of a board that ask for something."""
    for panel in board["panels"]:
        for one in (panel, *panel.get("panels", ())):
            if one.get("targets"):
                yield Panel(one["title"].removesuffix(" ($currency)"), one["targets"])


def took_s(server: Prometheus, panel: Panel, range_s: int, end_s: float) -> float:
    """Return how long the queries of a panel take, one after another, in seconds.

    Args:
        server: Whom to ask.
        panel: The panel.
        range_s: The range of the board.
        end_s: Its end, Unix time.
    """
    whole_s = 0.0
    for target in panel.targets:
        path, parameters = asked(target, range_s, end_s)
        began_s = time.perf_counter()
        server.ask(path, **parameters)
        whole_s += time.perf_counter() - began_s
    return whole_s


def asked(target: dict[str, Any], range_s: int, end_s: float) -> tuple[str, dict[str, str]]:
    """Return the path and the parameters that a query of a board is sent with, all variables at All."""
    step_s = STEPS_S[range_s]
    windows = {
        "$__range": f"{range_s}s",
        "$__rate_interval": f"{max(step_s + _SCRAPED_S, 4 * _SCRAPED_S)}s",
    }
    expr = target["expr"]
    for name, value in (windows | _EVERYTHING).items():
        expr = expr.replace(name, value)
    if target["instant"]:
        return "query", {"query": expr, "time": f"{end_s:.3f}"}
    last_s = end_s // step_s * step_s
    span = {"start": f"{last_s - range_s:.0f}", "end": f"{last_s:.0f}", "step": str(step_s)}
    return "query_range", {"query": expr, **span}


def trivial_s(server: Prometheus, runs: int) -> float:
    """Return how long a query takes that reads nothing, in seconds; the median of many."""
    target = {"expr": "vector(1)", "instant": True}
    panel = Panel("", [target])
    return statistics.median(took_s(server, panel, DAY_S, time.time()) for _ in range(20 * runs))


class Took(NamedTuple):
    """How long a panel takes, in seconds.

    Attributes:
        median: On the wall, of several times.
        computed: By all cores of the server, the mean.
    """

    median: float
    computed: float


def measured(server: Prometheus, panels: list[Panel], end_s: float, runs: int) -> dict[str, dict[int, Took]]:
    """Return how long each panel takes, by title and range."""
    found: dict[str, dict[int, Took]] = {}
    for panel in panels:
        found[panel.title] = {}
        for range_s in STEPS_S:
            before_s = server.computed_s()
            median_s = statistics.median(took_s(server, panel, range_s, end_s) for _ in range(runs))
            found[panel.title][range_s] = Took(median_s, (server.computed_s() - before_s) / runs)
    return found
