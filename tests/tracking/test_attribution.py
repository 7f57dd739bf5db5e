"""Who is billed: field by field the innermost explicit value wins, and what counts as a value."""

from __future__ import annotations

import contextvars
import enum
import itertools
import logging

import pytest

import gputrace
from gputrace import catalogue, faults
from gputrace.attribution import FIELDS

#: From the outside inwards; each can name any field.
LEVELS = ["outer attribute_to", "outer span", "inner attribute_to", "track"]


def nest(levels, given, work) -> None:
    """Run `work` inside of these levels, of which each names what `given` has for it."""
    if not levels:
        work()
        return
    level, *inner = levels
    fields = given.get(level, {})
    if "attribute_to" in level:
        with gputrace.attribute_to(**fields):
            nest(inner, given, work)
    elif "span" in level:
        with gputrace.span(level, **fields):
            nest(inner, given, work)
    else:
        gputrace.track(operation="innermost", **fields)(lambda: nest(inner, given, work))()


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("naming", list(itertools.product([False, True], repeat=len(LEVELS))))
def test_the_innermost_explicit_value_wins(rig, field, naming) -> None:
    given = {level: {field: level} for level, names in zip(LEVELS, naming, strict=True) if names}
    nest(LEVELS, given, lambda: None)
    (innermost,) = [call for call in rig.settled() if call.operation == "innermost"]
    expected = next((level for level in reversed(LEVELS) if level in given), None)
    if field == "feature":
        expected = expected or catalogue.NO_FEATURE
    assert getattr(innermost, field) == expected


def test_each_field_has_its_own_precedence(rig) -> None:
    @gputrace.track(operation="inner", model="minilm", stage="small")
    def inner(): ...

    with (
        gputrace.attribute_to("search", tenant="acme", model="outer"),
        gputrace.span("block", variant="fp16", stage="outer"),
        gputrace.attribute_to(tenant="umbrella"),
    ):
        inner()
    call = next(call for call in rig.settled() if call.operation == "inner")
    assert (call.feature, call.tenant, call.model) == ("search", "umbrella", "minilm")
    assert (call.variant, call.stage) == ("fp16", "small")


def test_what_encloses_is_in_force_again_after_a_block() -> None:
    assert gputrace.current().feature == catalogue.NO_FEATURE
    with gputrace.attribute_to("outer", tenant="acme"):
        with gputrace.attribute_to("inner"), gputrace.span("block", feature="innermost"):
            assert (gputrace.current().feature, gputrace.current().tenant) == ("innermost", "acme")
        with pytest.raises(ValueError, match=r"^$"), gputrace.attribute_to("inner"):
            raise ValueError
        assert gputrace.current().feature == "outer"
    assert (gputrace.current().feature, gputrace.current().tenant) == (catalogue.NO_FEATURE, None)


def test_unnamed_work_has_a_row_of_its_own(rig) -> None:
    gputrace.track(lambda: rig.work(3))()
    assert rig.time_by() == {catalogue.NO_FEATURE: pytest.approx(3e-9)}


class Tier(str, enum.Enum):
    FREE = "free"


class Priority(enum.IntEnum):
    HIGH = 1


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "True"), (1, "1"), (1.0, "1.0"), (Tier.FREE, "free"), (b"x", "b'x'"), (["a"], "['a']"), ("", "")],
)
def test_values_are_strings(rig, value, text) -> None:
    with gputrace.attribute_to(tenant=value):
        gputrace.track(lambda: None)()
    gputrace.track(tenant=value)(lambda: None)()
    with gputrace.span("block", tenant=value):
        gputrace.current().set(tenant=value)
    assert [call.tenant for call in rig.settled()] == [text] * 3
    assert all(type(call.tenant) is str for call in rig.settled())


@pytest.mark.parametrize("values", list(itertools.permutations([True, 1, 1.0, "1"])))
def test_opentelemetry_python_5573_equal_values_of_different_types_stay_apart(rig, values) -> None:
    """True, 1 and 1.0 are one key to Python; whichever comes first must not name the others."""
    for value in values:
        with gputrace.span("block", feature=value):
            rig.work(1)
    assert [call.feature for call in rig.settled()] == [str(value) for value in values]
    assert rig.time_by() == pytest.approx({"True": 1e-9, "1": 2e-9, "1.0": 1e-9})


def test_an_enumeration_is_what_it_says_whatever_came_before(rig) -> None:
    for feature in (Tier.FREE, "free", Tier.FREE):
        with gputrace.span("block", feature=feature):
            pass
    assert [call.feature for call in rig.settled()] == ["free"] * 3


@pytest.mark.parametrize("field", FIELDS)
def test_reserved_values_are_refused_at_decoration(field) -> None:
    with pytest.raises(ValueError, match=f"track: {field}='__none__' starts with '__'"):
        gputrace.track(**{field: "__none__"})


@pytest.mark.parametrize("field", FIELDS)
def test_reserved_values_are_ignored_at_run_time_with_one_line(rig, caplog, field) -> None:
    with caplog.at_level(logging.WARNING, logger="gputrace"), gputrace.attribute_to(**{field: "outer"}):
        for _ in range(3):
            with gputrace.attribute_to(**{field: "__other__"}), gputrace.span("block", **{field: "__x"}):
                gputrace.current().set(**{field: "__y"})
    assert {getattr(call, field) for call in rig.settled()} == {"outer"}
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert all(f"{field}='__" in line and line.endswith("; ignored") for line in lines)


def test_a_reserved_operation(rig, caplog) -> None:
    with pytest.raises(ValueError, match="operation"):
        gputrace.track(operation="__other__")
    with caplog.at_level(logging.WARNING, logger="gputrace"), gputrace.span("__other__"):
        pass
    assert rig.one().operation == "span"
    assert len(caplog.records) == 1


class Untellable:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_a_value_without_a_text_does_not_fail_the_request(rig, monkeypatch, caplog) -> None:
    monkeypatch.delenv(faults.RAISE_VARIABLE)
    with (
        caplog.at_level(logging.WARNING, logger="gputrace"),
        gputrace.attribute_to("search", tenant=Untellable()),
        gputrace.span("block", tenant=Untellable()),
    ):
        gputrace.current().set(tenant=Untellable())
    assert (rig.one().feature, rig.one().tenant) == ("search", None)
    assert len(caplog.records) == 1


def test_current_set_changes_the_call_that_is_running(rig) -> None:
    with gputrace.attribute_to("outer", tenant="acme"):
        with gputrace.span("block"):
            gputrace.current().set("inner", model="minilm")
            gputrace.track(operation="work")(lambda: None)()
        assert gputrace.current().feature == "outer"
    for call in rig.settled():
        assert (call.feature, call.tenant, call.model) == ("inner", "acme", "minilm")


def test_current_set_changes_the_scope_for_what_comes_after(rig) -> None:
    with gputrace.attribute_to("outer"):
        gputrace.track(operation="before")(lambda: None)()
        gputrace.current().set(tenant="acme")
        gputrace.track(operation="after")(lambda: None)()
    before, after = rig.settled()
    assert (before.tenant, before.feature) == (None, "outer")
    assert (after.tenant, after.feature) == ("acme", "outer")


def test_current_set_outside_of_anything() -> None:
    def request() -> str:
        gputrace.current().set("search")
        return gputrace.current().feature

    assert contextvars.copy_context().run(request) == "search"
    assert gputrace.current().feature == catalogue.NO_FEATURE


def test_a_view_shows_what_it_has_set() -> None:
    with gputrace.span("block") as call:
        view = gputrace.current()
        view.set("search", tenant="acme")
        assert (view.feature, view.tenant) == ("search", "acme")
        assert view.call_id == call.id
        assert repr(view.attribution) == "Attribution(feature='search', tenant='acme')"


def test_current_outside_of_any_call() -> None:
    assert gputrace.current().call_id is None
    with gputrace.attribute_to("search"):
        assert gputrace.current().call_id is None


def test_what_a_call_was_charged_stays_when_it_is_renamed(rig) -> None:
    """Published time is final: only the rest goes to the new name."""
    with gputrace.span("block", feature="before"):
        rig.work(3)
        assert rig.time_by() == pytest.approx({"before": 3e-9})
        gputrace.current().set("after")
        rig.work(4)
    assert rig.time_by() == pytest.approx({"before": 3e-9, "after": 4e-9})


def test_many_combinations_are_forgotten_again(rig) -> None:
    """A site remembers how it merges with what encloses it, but not for every request that ever came."""
    work = gputrace.track(operation="work", model="minilm")(lambda: None)
    for number in range(2_000):
        with gputrace.attribute_to(tenant=str(number)):
            work()
    assert len(work.__gputrace__.site.merged) <= 4_096
    assert [call.tenant for call in rig.settled()] == [str(number) for number in range(2_000)]
