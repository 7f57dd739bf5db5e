"""Steps of a model server: one owner of the device, split among its members by what each does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import gputrace
from gputrace import catalogue, faults, ledger, steps_weights, steps_work
from gputrace.testing import Recorder, VirtualClock, VirtualGpu

if TYPE_CHECKING:
    from gputrace.batching import Member

MS = 1_000_000
Work = gputrace.Work


def member(feature: str, tenant: str | None = None) -> Member:
    with gputrace.attribute_to(feature=feature, tenant=tenant):
        return gputrace.member()


def charged_ns(recorder: Recorder, attribute: str = catalogue.FEATURE) -> dict[str, int]:
    return {name: round(seconds * 1e9) for name, seconds in recorder.time_by(attribute).items() if seconds}


def rows_of(recorder: Recorder, metric: catalogue.Metric, *attributes: str) -> dict[Any, float]:
    rows = recorder.settler.snapshot().requests[metric.name]
    return {tuple(row.get(name) for name in attributes): value for row, value in rows}


def test_a_step_is_split_by_what_its_members_do(recorder: Recorder, clock: VirtualClock) -> None:
    fixed, prefill, decode, context, pairs = steps_weights.CONSTANTS
    work = [Work(prefill=512, context=1024), Work(decode=1, context=4096)]
    with gputrace.step([member("rag"), member("chat")], work, model="llm"):
        clock.advance(8 * MS)
    rag = fixed / 2 + 512 * prefill + (512 * 1024 + 512 * 513 / 2) / 1000 * pairs
    chat = fixed / 2 + decode + 4096 * context
    expected = {"rag": round(8 * MS * rag / (rag + chat)), "chat": round(8 * MS * chat / (rag + chat))}
    assert charged_ns(recorder) == expected
    assert charged_ns(recorder, catalogue.MODEL) == {"llm": 8 * MS}
    assert sum(recorder.settler.totals.time.values()) == 8 * MS * ledger.SCALE


def test_a_step_may_begin_in_one_function_and_end_in_another(clock: VirtualClock) -> None:
    with VirtualGpu(1, clock) as gpu, Recorder(gpu.host_ns) as recorder:
        gpu.init()
        step = gputrace.step([member("a"), member("b")], [Work(decode=1), Work(decode=1)])
        step.__enter__()
        gpu.launch(3 * MS)
        gpu.advance(1 * MS)
        gpu.launch(1 * MS)
        step.__exit__(None, None, None)
        gpu.advance(10 * MS)
        assert charged_ns(recorder) == {"a": 2 * MS, "b": 2 * MS}
        assert [call.operation for call in recorder.settled()] == ["step"]


def test_one_member_twice_bears_both_works(recorder: Recorder, clock: VirtualClock) -> None:
    """Two sequences of one request, as `n=2` makes them."""
    one, two = member("a"), member("b")
    with gputrace.step([one, two, one], [Work(decode=1)] * 3):
        clock.advance(30)
    assert charged_ns(recorder) == {"a": 20, "b": 10}


def test_a_step_that_serves_nobody_is_overhead(recorder: Recorder, clock: VirtualClock) -> None:
    with gputrace.step([], [], model="llm"):
        clock.advance(10)
    assert charged_ns(recorder) == {"__overhead__": 10}
    assert rows_of(recorder, catalogue.BATCH_MEMBERS, catalogue.FEATURE) == {}
    (call,) = recorder.settled()
    assert call.feature == "__overhead__"


def test_a_step_that_is_counted_elsewhere_is_charged_and_no_more(
    recorder: Recorder, clock: VirtualClock
) -> None:
    """Both ranks of a tensor parallel server hold their own device for the same step."""
    with gputrace.request("POST /v1/completions", feature="a") as request:
        one = gputrace.member()
    for counted in (True, False):
        with gputrace.step([one], [Work(prefill=5)], counted=counted):
            clock.advance(10)
    assert charged_ns(recorder) == {"a": 20}
    recorder.settled()
    assert (request.calls, request.charged_ns) == (1, 20)
    calls = recorder.settler.snapshot().calls
    assert sum(count for row, count in calls if row[catalogue.OPERATION] == "step") == 1
    assert rows_of(recorder, catalogue.BATCH_MEMBERS, catalogue.FEATURE) == {("a",): 1}


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ([Work(prefill=5)], "there are 2 members and work for 1"),
        ([Work(prefill=5), Work(prefill=-1)], "work[1] is Work(prefill=-1, "),
        ([Work(decode=5), Work(decode=-1)], "tokens are not negative"),
        ([Work(prefill=5), Work(prefill=1.5)], "tokens are whole numbers"),  # type: ignore[arg-type]
        ([Work(prefill=5), Work(prefill=1 << 70)], "less than 2**40"),
        ([Work(prefill=5), Work(prefill=1, recomputed=2)], "recomputed tokens are a part of prefill"),
        ([Work(prefill=5), None], "work[1] is a NoneType, not a gputrace.Work"),
        ([Work(prefill=5), 7], "work[1] is a int, not a gputrace.Work"),
        (None, "there are 2 members and work for 0"),
        (7, "there are 2 members and work for 0"),
    ],
)
def test_wrong_work_is_said_once_and_counts_alike(
    recorder: Recorder, clock: VirtualClock, caplog: pytest.LogCaptureFixture, work: Any, said: str
) -> None:
    faults.reset()
    one, two = member("a"), member("b")
    for _ in range(2):
        with gputrace.step([one, two], work):
            clock.advance(10)
    assert charged_ns(recorder) == {"a": 10, "b": 10}
    told = [record.getMessage() for record in caplog.records if said in record.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("gputrace.step: ")


def test_each_kind_of_wrong_work_is_said(
    recorder: Recorder, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    faults.reset()
    for wrong in (Work(prefill=-1), Work(recomputed=1), Work(prefill=-2)):
        with gputrace.step([member("a")], [wrong]):
            clock.advance(10)
    assert charged_ns(recorder) == {"a": 30}
    assert len([one for one in caplog.records if "gputrace.step: " in one.getMessage()]) == 2


@pytest.mark.parametrize("members", [None, 7, [3]])
def test_members_that_are_none_are_nobody(recorder: Recorder, clock: VirtualClock, members: Any) -> None:
    with gputrace.step(members, [Work(decode=1)]):
        clock.advance(10)
    with gputrace.batch(members):
        clock.advance(5)
    assert charged_ns(recorder) == {"__none__": 15}


def test_work_that_cannot_be_read_reaches_nobody(recorder: Recorder, clock: VirtualClock) -> None:
    def broken() -> Any:
        yield Work(prefill=5)
        raise OSError

    with gputrace.step([member("a"), member("b")], broken()):
        clock.advance(10)
    assert charged_ns(recorder) == {"a": 5, "b": 5}


def test_numbers_of_other_libraries_are_read() -> None:
    class Number:
        def __index__(self) -> int:
            return 3

    assert steps_work.checked([Work(prefill=Number())], 1) == [Work(prefill=3)]  # type: ignore[arg-type]


def test_work_of_nothing_at_all_counts_alike(recorder: Recorder, clock: VirtualClock) -> None:
    assert steps_work.whole_weights([0.0, 0.0]) == [1, 1]
    with gputrace.step([member("a"), member("b")], [Work(), Work(cached=7)]):
        clock.advance(10)
    assert charged_ns(recorder) == {"a": 5, "b": 5}


def test_cached_tokens_cost_nothing_and_recomputed_ones_what_others_do(
    recorder: Recorder, clock: VirtualClock
) -> None:
    plain = Work(prefill=100, context=500)
    work = [plain, plain._replace(cached=500), plain._replace(recomputed=100)]
    with gputrace.step([member("plain"), member("cached"), member("recomputed")], work):
        clock.advance(9 * MS)
    assert charged_ns(recorder) == {"plain": 3 * MS, "cached": 3 * MS, "recomputed": 3 * MS}


def test_what_is_under_a_step_is_split_as_it_is(recorder: Recorder, clock: VirtualClock) -> None:
    step = gputrace.step([member("a"), member("b")], [Work(prefill=900), Work(decode=1)], hold="none")
    with step, gputrace.span("attention"):
        clock.advance(1_000)
    shares = charged_ns(recorder)
    assert shares["a"] > 8 * shares["b"]
    assert sum(shares.values()) == 1_000
