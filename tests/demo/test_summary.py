from __future__ import annotations

import io
from typing import Any

import pytest

pytestmark = pytest.mark.requires("torch", "sklearn", "fastapi", "uvicorn", "httpx")


def outcome(**given: Any) -> Any:
    from gputrace.demo.driver import LOAD, UNTRACKED, Outcome, Tally
    from gputrace.demo.truth import Phase, Slice, Truth

    planted = given.pop("planted", Slice(2.0, 1.99, 0.0, 2.0))
    truth = Truth(
        on_gpu=given.pop("on_gpu", False),
        phases=(Phase(LOAD, (Slice(4.0, 3.0, 1.5, 0.0),)), Phase(UNTRACKED, (planted,))),
        features={"scan-preview": 0.1, "archive-audit": 1.0, "form-entry": 0.4},
    )
    tallies = {
        "scan-preview": Tally(answered=100, correct=93),
        "archive-audit": Tally(answered=100, correct=99),
        "form-entry": Tally(answered=100, correct=98, escalated=25, failed=1),
    }
    return Outcome(truth, given.pop("tallies", tallies), interrupted=False)


def report(*, form_entry: float = 0.4, idle: float = 1.01, unknown: float = 0.0) -> dict[str, Any]:
    charged = {"scan-preview": 0.1, "archive-audit": 1.0, "form-entry": form_entry}
    rows = [{"feature": feature, "charged_s": seconds} for feature, seconds in charged.items()]
    return {"rows": rows, "totals": {"wall_s": 6.0, "untracked_s": 3.5, "idle_s": idle, "unknown_s": unknown}}


def shown(one: Any, about: dict[str, Any]) -> str:
    from rich.console import Console

    from gputrace.demo.summary import show

    text = io.StringIO()
    show(Console(file=text, width=200), one, about)
    return text.getvalue()


def line_of(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(start))


def test_quality_is_told_by_feature() -> None:
    text = shown(outcome(), report())
    assert line_of(text, "scan-preview").split() == ["scan-preview", "100", "93.0%", "–", "0"]
    assert line_of(text, "form-entry").split() == ["form-entry", "100", "98.0%", "25.0%", "1"]


def test_saving_is_signed() -> None:
    assert "-60.0%" in shown(outcome(), report())
    assert "+20.0%" in shown(outcome(), report(form_entry=1.2))


def test_saving_is_not_told_where_a_feature_never_ran() -> None:
    text = shown(outcome(tallies={}), report())
    assert "Time per request" not in text
    assert line_of(text, "form-entry").split() == ["form-entry", "0", "–", "–", "0"]


def test_saving_is_by_request() -> None:
    from gputrace.demo.driver import Tally
    from gputrace.demo.summary import saving

    tallies = {"form-entry": Tally(answered=10), "archive-audit": Tally(answered=100)}
    assert saving(tallies, {"form-entry": 0.1, "archive-audit": 2.0}) == pytest.approx(0.5)
    assert saving(tallies, {"form-entry": 0.1}) is None


def test_differences_are_signed_and_judged() -> None:
    text = shown(outcome(), report(idle=1.2))
    assert line_of(text, "wall").split() == ["wall", "6.000", "s", "6.000", "s", "+0.00%", "±0.1%", "agrees"]
    assert line_of(text, "idle").split()[-3:] == ["+18.81%", "±5.0%", "DIFFERS"]
    assert line_of(shown(outcome(), report(unknown=4.0)), "idle").split()[-3:] == ["±5.0%", "not", "read"]


def test_a_crowded_machine_is_named() -> None:
    from gputrace.demo.truth import Slice

    assert "Other programs" not in shown(outcome(), report())
    crowded = Slice(2.0, 1.0, 0.0, 2.0)
    assert "Other programs took 50%" in shown(outcome(planted=crowded), report())
    assert "Other programs" not in shown(outcome(planted=crowded, on_gpu=True), report())
