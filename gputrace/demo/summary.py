"""What the demo says in the end, beyond the report: quality, savings, and whether the clocks agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from gputrace.demo.comparison import charged_by_feature, compare
from gputrace.demo.driver import PAUSE, UNTRACKED, Tally
from gputrace.demo.escalation import AUDIT_RATE
from gputrace.demo.service import ARCHIVE_AUDIT, FEATURES, FORM_ENTRY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from gputrace.demo.driver import Outcome
    from gputrace.demo.truth import Truth

# Above this share that other programs took from a run, the comparison needs a word about it.
CROWDED = 0.05


def show(console: Console, outcome: Outcome, report: Mapping[str, Any]) -> None:
    """Print everything that follows the spend report.

    Args:
        console: Where to.
        outcome: What the demo did.
        report: The object that ``gputrace report --json`` prints.
    """
    console.print()
    console.print(_accuracy(outcome))
    saved = saving(outcome.tallies, charged_by_feature(report))
    if saved is not None:
        console.print(
            f"Time per request of {FORM_ENTRY}, which escalates when unsure and audits {AUDIT_RATE:.0%} of "
            f"the rest, against {ARCHIVE_AUDIT}, which always does: {-saved:+.1%}\n"
        )
    console.print(_agreement(outcome, report))


def saving(tallies: Mapping[str, Tally], charged: Mapping[str, float]) -> float | None:
    """What escalating saved against always asking the heavy model, as a share of the latter.

    Negative where it cost more. None where a feature answered nothing or spent nothing.
    """
    each = []
    for feature in (FORM_ENTRY, ARCHIVE_AUDIT):
        answered = tallies.get(feature, Tally()).answered
        if not answered or not charged.get(feature):
            return None
        each.append(charged[feature] / answered)
    own, always = each
    return 1 - own / always


def _accuracy(outcome: Outcome) -> Table:
    table = Table(title="Answers, checked against the labels", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("feature")
    for heading in ("requests", "correct", "escalated", "failed"):
        table.add_column(heading, justify="right")
    for feature in FEATURES:
        tally = outcome.tallies.get(feature, Tally())
        table.add_row(
            feature,
            str(tally.answered),
            _share(tally.correct, tally.answered),
            _share(tally.escalated, tally.answered) if feature == FORM_ENTRY else "–",
            str(tally.failed),
        )
    return table


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def _agreement(outcome: Outcome, report: Mapping[str, Any]) -> Table:
    table = Table(
        title="The driver's own clocks against the report",
        caption=_planted(outcome.truth),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("")
    for heading in ("driver", "report", "difference", "allowed"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for check in compare(outcome.truth, report):
        table.add_row(
            check.name,
            f"{check.driver_s:.3f} s",
            "" if check.report_s is None else f"{check.report_s:.3f} s",
            "" if check.difference is None else f"{check.difference:+.2%}",
            f"±{check.tolerance:.1%}",
            check.verdict,
        )
    return table


def _planted(truth: Truth) -> str:
    run = truth.phase(UNTRACKED)
    text = (
        f"Planted: a pause of {truth.phase(PAUSE).wall_s:.2f} s in which nothing ran, and {run.wall_s:.2f} s "
        "of the heavy model that nothing tracked."
    )
    taken = 1 - run.cpu_s / run.wall_s if run.wall_s and not truth.on_gpu else 0.0
    if taken > CROWDED:
        text += (
            f" Other programs took {taken:.0%} of the processor from that run, which therefore counts for "
            "less; on a crowded machine untracked and idle time are blurred."
        )
    return text
