"""Times the panels of a board over the history of a large fleet, in a Prometheus of its own.

    python benchmarks/scale_boards.py [--gpus 1000] [--features 50] [--days 30] [--folder DIR]

writes the series that 100 GPUs and 20 processes export in a day, and those that the recording rules would
have made in a month of a larger fleet; starts Prometheus anew with the rules, and asks for every panel as
Grafana would, for a day, a week and a month. With --folder the history is kept, and found again. Needs numpy
and the Prometheus of `make servers`, some ten minutes, and 8 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from scale import history, queries
from scale.server import Prometheus

from gputrace.exporters.remote_write import RemoteWriter
from gputrace.grafana import output

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
SERVERS = Path(os.environ.get("GPUTRACE_SERVERS", ROOT / ".servers"))
RULES = ROOT / "grafana" / "prometheus" / "rules"
NOTE = "history.json"


def fill(server: Prometheus, arguments: argparse.Namespace) -> dict[str, float]:
    """Write the history, and return what there is of it."""
    rules = history.rules_in(sorted(RULES.iterdir()))
    recorded = history.recorded(history.Size(arguments.gpus, 20, arguments.features), rules)
    raw = history.raw(history.Size(arguments.raw_gpus, arguments.processes, 20))
    end_s = int(time.time()) // 300 * 300
    flows = {round(arguments.days) * history.DAY_S: recorded, history.DAY_S: raw}
    if len(flows) == 1:
        flows = {history.DAY_S: recorded + raw}
    began_s = time.monotonic()
    writer = RemoteWriter(server.url)
    sent = 0

    def counted() -> Iterator[bytes]:
        nonlocal sent
        for one in history.hours(flows, end_s, end_s + history.HOUR_S):
            sent += 1
            yield one

    writer.send(counted())
    written_s = time.monotonic() - began_s
    server.settled(end_s - 4 * history.HOUR_S)
    return {
        "end_s": end_s,
        "raw_series": sum(map(len, raw)),
        "raw_samples": sum(map(len, raw)) * history.DAY_S / history.EVERY_MINUTE_S,
        "recorded_series": sum(map(len, recorded)),
        "recorded_samples": arguments.days * sum(flow.a_day for flow in recorded),
        "written_s": written_s,
        "settled_s": time.monotonic() - began_s - written_s,
    }


def written(note: dict[str, float]) -> str:
    """Return how much of a history there is."""
    rows = [
        f"| {kind} | {note[f'{kind}_series']:.0f} | {note[f'{kind}_samples'] / 1e6:.0f} million |"
        for kind in ("raw", "recorded")
    ]
    took = f"Written in {note['written_s']:.0f} s, settled {note['settled_s']:.0f} s later;"
    return "\n".join(("| | series | samples |", "| --- | ---: | ---: |", *rows, "", took))


def rule_groups(server: Prometheus) -> None:
    """Print how long each group of rules takes, of the series that are there."""
    print("\n| rules | every | one evaluation |\n| --- | --- | --- |")
    for group in server.ask("rules")["groups"]:
        series = f"{group['name'].removeprefix('gputrace-')} ({len(group['rules'])})"
        print(f"| {series} | {group['interval']:.0f} s | {group['evaluationTime']:.2f} s |")


def measure(server: Prometheus, arguments: argparse.Namespace, note: dict[str, float]) -> None:
    """Start the server anew, and print how long every panel takes."""
    panels = list(queries.panels_of(json.loads(board_of(arguments.board))))
    longest_s, end_s = max(queries.STEPS_S), note["end_s"] + 0.5
    server.stop()
    server.forget()
    server.start(RULES)
    started_s = time.monotonic()
    cold = {panel.title: queries.took_s(server, panel, longest_s, end_s) for panel in panels}
    trivial_s = queries.trivial_s(server, arguments.runs)
    warm = queries.measured(server, panels, end_s, arguments.runs)
    print("| panel | queries | 24 h | 7 d | 30 d | × trivial | computing | first |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for panel in panels:
        took = warm[panel.title]
        times = " | ".join(f"{one.median * 1000:.0f} ms" for one in took.values())
        longest = took[longest_s]
        costs = f"{longest.median / trivial_s:.0f} | {longest.computed * 1000:.0f} ms"
        first = f"{cold[panel.title] * 1000:.0f} ms"
        print(f"| {panel.title} | {len(panel.targets)} | {times} | {costs} | {first} |")
    print(f"\nMedians of {arguments.runs}. A trivial query takes {trivial_s * 1000:.2f} ms.")
    print("Over 30 days: × trivial, what all cores computed, and the first time after a start.")
    time.sleep(max(0.0, arguments.wait - (time.monotonic() - started_s)))
    rule_groups(server)


def board_of(uid: str) -> str:
    """Return a board as it is written.

    Raises:
        SystemExit: There is none of that name.
    """
    found = {board.uid: board for board in output.boards()}
    if uid not in found:
        raise SystemExit(f"There is no board {uid}: {', '.join(found)}")
    return found[uid].to_json()


def parsed() -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--gpus", type=int, default=1_000, help="of which rules have recorded")
    parser.add_argument("--features", type=int, default=50, help="of which rules have recorded")
    parser.add_argument("--days", type=int, default=30, help="that they have recorded")
    parser.add_argument("--raw-gpus", type=int, default=100, help="that export, for a day")
    parser.add_argument("--processes", type=int, default=20, help="that export, for a day")
    parser.add_argument("--runs", type=int, default=5, help="of each query; the median counts")
    parser.add_argument("--board", default="gputrace-spend", help="uid of the board")
    parser.add_argument("--prometheus", type=Path, default=SERVERS / "bin" / "prometheus")
    parser.add_argument(
        "--wait", type=float, default=390.0, metavar="S", help="before rules are timed: all were once"
    )
    parser.add_argument("--folder", type=Path, help="where the history is kept")
    return parser.parse_args()


def main() -> None:
    """Write, restart, ask, and print tables in Markdown."""
    arguments = parsed()
    if not arguments.prometheus.exists():
        raise SystemExit(f"No Prometheus at {arguments.prometheus}: `make servers`, or --prometheus")
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        server = Prometheus(arguments.prometheus, folder)
        try:
            server.start()
            kept = folder / NOTE
            if not kept.exists():
                kept.write_text(json.dumps(fill(server, arguments)))
            note = json.loads(kept.read_text())
            print(written(note), f"{server.bytes_on_disk() / 1e9:.1f} GB in blocks.\n")
            measure(server, arguments, note)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
