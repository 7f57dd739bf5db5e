"""Batches in a scheduler of SGLang: one call each, split among the requests that they serve."""

from __future__ import annotations

import os
from http import HTTPStatus
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import gputrace
from gputrace import catalogue, faults
from gputrace.integrations import (
    serving_stamps,
    serving_steps,
    sglang as integration,
    sglang_members,
    sglang_requests,
    sglang_scheduler,
)
from gputrace.testing import Recorder, VirtualClock, VirtualGpu
from tests.integrations import sglang_stand_in
from tests.integrations.sglang_stand_in import (
    FINISH_ABORT,
    AbortReq,
    FinishReason,
    ForwardMode,
    Lengths,
    Req,
    SamplingParams,
    ScheduleBatch,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
TRACE = f"00-{TRACE_ID:032x}-b7ad6b7169203331-01"
STOPPED = FinishReason("stop", matched=2)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(serving_stamps.MARK_VARIABLE, "m" * 32)
    monkeypatch.setattr(serving_steps, "configure", lambda: None)
    # It exports for real, when it pleases.
    monkeypatch.setattr(sglang_scheduler, "Exports", lambda: SimpleNamespace(worked=lambda: None))
    faults.reset()
    yield
    faults.reset()


@pytest.fixture
def sglang(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = sglang_stand_in.install(monkeypatch)
    integration.register()
    made.HookRegistry.apply_hooks()
    return made


class Rank:
    """One scheduler; each batch takes 10 ns, and a sample that waits for its grammar 10 more."""

    def __init__(self, sglang: Any, bench: Any, *, overlap: bool = False) -> None:
        self.seen: list[str] = []
        self.bench = bench
        self.scheduler = sglang.Scheduler(self.work, overlap=overlap)
        self.streamer = sglang.SchedulerOutputStreamer()
        self.sender = sglang.SenderWrapper()

    def work(self) -> None:
        self.seen.append(self.scheduler.device_module.current)
        self.bench.time.advance(10)

    def run(self, batch: ScheduleBatch) -> Any:
        result = self.scheduler.run_batch(batch)
        if self.scheduler.delays:
            self.scheduler.launch_batch_sample_if_needed(result, batch)
        return result

    def end(self, req: Req, reason: Any = STOPPED) -> None:
        req.finished_reason = reason
        self.streamer.stream_output([req], return_logprob=False)


def request(feature: str, rid: str = "a", prompt: int = 8, **more: Any) -> Req:
    custom = {"gputrace": {"feature": feature, "mark": "m" * 32, **more.pop("stamp", {})}}
    return Req(rid, "", [0] * prompt, SamplingParams(custom), **more)


def prefill(*reqs: Req) -> ScheduleBatch:
    lengths = [len(req.origin_input_ids) for req in reqs]
    return ScheduleBatch(list(reqs), ForwardMode.EXTEND, [0] * len(reqs), lengths)


def decode(*reqs: Req) -> ScheduleBatch:
    """As after the scheduler has sampled a token of each."""
    for req in reqs:
        req.output_ids.append(1)
    return ScheduleBatch(list(reqs), ForwardMode.DECODE, seq_lens_cpu=Lengths(req.seqlen for req in reqs))


def steps(bench: Any) -> list[Any]:
    names = {"sglang step", "sglang idle step"}
    return [one for one in bench.settled() if one.operation in names]


def requests(bench: Any) -> list[tuple[str, str, str, int]]:
    """Operation, feature, status and number of steps of each request that has ended."""
    return [
        (one.operation, one.feature, one.status, one.call.request.calls)
        for one in bench.settled()
        if one.call.site.is_request
    ]


def unmeasured(bench: Any) -> dict[str, int]:
    return {row[0][catalogue.LOSS_REASON]: row[1] for row in bench.snapshot().unmeasured}


def test_a_batch_is_a_step_that_its_requests_share(sglang: Any, bench: Any) -> None:
    rank = Rank(sglang, bench)
    rag, chat = request("rag"), request("chat", "b")
    rank.run(prefill(rag, chat))
    rank.run(decode(rag))
    both, alone = steps(bench)
    assert (both.charged_ns, both.model, both.feature) == (10, "tiny", "__shared__")
    assert (alone.charged_ns, alone.feature) == (10, "rag")
    assert bench.time_by() == {"rag": pytest.approx(15e-9), "chat": pytest.approx(5e-9)}


def test_between_steps_nothing_is_held_and_no_scope_is_left(sglang: Any, bench: Any) -> None:
    rank = Rank(sglang, bench)
    rag = request("rag")
    rank.run(prefill(rag))
    assert gputrace.current().feature == "__none__"
    bench.time.advance(1_000)
    rank.run(decode(rag))
    assert [one.charged_ns for one in steps(bench)] == [10, 10]


def test_a_step_that_waits_for_its_grammar_ends_with_its_sample(sglang: Any, bench: Any) -> None:
    rank = Rank(sglang, bench, overlap=True)
    rank.scheduler.delays = True
    rank.run(prefill(request("rag")))
    (one,) = steps(bench)
    assert one.charged_ns == 20
    assert gputrace.current().feature == "__none__"


def test_an_idle_turn_of_the_loop_samples_nothing(sglang: Any, bench: Any) -> None:
    rank = Rank(sglang, bench)
    rank.scheduler.launch_batch_sample_if_needed(None, None)
    rank.run(prefill(request("rag")))
    rank.scheduler.launch_batch_sample_if_needed(None, None)
    assert [one.charged_ns for one in steps(bench)] == [10]


@pytest.mark.parametrize(("overlap", "stream"), [(True, "forward"), (False, "schedule")])
def test_it_is_timed_where_the_forward_runs(
    overlap: bool, stream: str, sglang: Any, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = Rank(sglang, bench, overlap=overlap)
    at: list[str] = []
    for name in ("begin", "end"):
        whole = getattr(serving_steps.OpenStep, name)

        def noting(self: Any, *args: Any, whole: Any = whole) -> None:
            at.append(rank.scheduler.device_module.current)
            whole(self, *args)

        monkeypatch.setattr(serving_steps.OpenStep, name, noting)
    rank.run(prefill(request("rag")))
    assert at == [stream, stream]
    # What SGLang does is left to itself.
    assert rank.seen == ["schedule"]


def test_batches_that_are_launched_ahead_do_not_overlap_on_the_device(sglang: Any) -> None:
    """On a GPU: the next batch is launched while one runs, and prepared on a stream of its own."""
    with VirtualGpu(1, VirtualClock()) as gpu, Recorder(gpu.host_ns) as recorder:
        gpu.init()
        scheduler = sglang.Scheduler(lambda: gpu.launch(300, scheduler.forward_stream), overlap=True)
        scheduler.device_module, scheduler.forward_stream = gpu, gpu.Stream()
        with gpu.stream(gpu.Stream()):
            for feature in ("rag", "chat"):
                gpu.launch(1_000)
                scheduler.run_batch(prefill(request(feature)))
                gpu.advance(10)
        gpu.advance(1_000_000)
        steps = [(one.feature, one.charged_ns) for one in recorder.settled() if "step" in one.operation]
        assert steps == [("rag", 300), ("chat", 300)]
        assert gpu.synchronizations == 0


def test_idle_batches_are_overhead(sglang: Any, bench: Any) -> None:
    rank = Rank(sglang, bench)
    rank.run(ScheduleBatch([], ForwardMode.IDLE))
    assert bench.time_by() == {"__overhead__": pytest.approx(10e-9)}
    assert [one.operation for one in steps(bench)] == ["sglang idle step"]


def test_what_was_computed_elsewhere_is_no_step(sglang: Any, bench: Any) -> None:
    rank = Rank(sglang, bench)
    assert rank.run(ScheduleBatch([request("rag")], ForwardMode.PREBUILT)) == "nothing"
    assert steps(bench) == []
    idle = ScheduleBatch([], ForwardMode.IDLE)
    rank.run(ScheduleBatch([request("rag")], ForwardMode.PREBUILT, inner_idle_batch=idle))
    assert bench.time_by() == {"__overhead__": pytest.approx(10e-9)}
    assert unmeasured(bench) == {}


def test_prefill_in_parts_of_the_model_is_counted_as_unmeasured(sglang: Any, bench: Any) -> None:
    rank = Rank(sglang, bench)
    batch = prefill(request("rag"))
    batch.forward_mode = ForwardMode.SPLIT_PREFILL
    rank.run(batch)
    assert steps(bench) == []
    assert unmeasured(bench) == {sglang_scheduler.SPLIT_PREFILL: 1}


@pytest.mark.parametrize("half", ["run_batch", "launch_batch_sample_if_needed"])
def test_a_step_that_raises_is_charged_and_failed(half: str, sglang: Any, bench: Any) -> None:
    rank = Rank(sglang, bench)
    rank.scheduler.delays = True
    batch = prefill(request("rag"))

    def failing() -> None:
        bench.time.advance(5)
        message = "out of memory"
        raise MemoryError(message)

    if half == "run_batch":
        rank.scheduler.work = failing
        with pytest.raises(MemoryError):
            rank.scheduler.run_batch(batch)
    else:
        result = rank.scheduler.run_batch(batch)
        result.delay_sample_func = failing
        with pytest.raises(MemoryError):
            rank.scheduler.launch_batch_sample_if_needed(result, batch)
    (one,) = steps(bench)
    assert (one.status, one.charged_ns) == ("error", 5 if half == "run_batch" else 15)
    assert gputrace.current().feature == "__none__"


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (STOPPED, "ok"),
        (FinishReason("length", length=8), "ok"),
        (FINISH_ABORT(), "cancelled"),
        (FINISH_ABORT("timeout", HTTPStatus.SERVICE_UNAVAILABLE), "error"),
        (FINISH_ABORT("too long", 400, "BadRequestError"), "error"),
    ],
)
def test_a_request_is_told_with_its_status_and_all_its_steps(
    reason: Any, status: str, sglang: Any, bench: Any
) -> None:
    rank = Rank(sglang, bench)
    rag = request("rag")
    rank.run(prefill(rag))
    rank.run(decode(rag))
    rank.streamer.stream_output([rag], return_logprob=False)
    assert requests(bench) == []
    rank.end(rag, reason)
    rank.end(rag, reason)
    assert requests(bench) == [("sglang generate", "rag", status, 2)]
    assert rank.streamer.streamed == [["a"]] * 3
    ((_, charged_s),) = bench.snapshot().requests["gputrace.request.time"]
    assert charged_s == pytest.approx(20e-9)


def test_errors_bear_the_word_that_the_client_gets() -> None:
    told = sglang_requests.status_of
    assert told(FINISH_ABORT("x", 400, "BadRequestError")) == ("error", "BadRequestError")
    assert told(FINISH_ABORT("x", HTTPStatus.SERVICE_UNAVAILABLE)) == ("error", "503")
    assert told({"type": "abort", "status_code": 503}) == ("error", "503")
    assert told(None) == ("cancelled", None)


@pytest.mark.parametrize(
    ("told", "status"), [(None, "cancelled"), ({"type": "abort", "status_code": 503}, "error")]
)
def test_a_request_that_ends_while_it_waits_is_closed(
    told: Any, status: str, sglang: Any, bench: Any
) -> None:
    rank = Rank(sglang, bench)
    rag, never = request("rag"), request("chat", "b")
    rank.run(prefill(rag))
    for req in (rag, never):
        rank.sender.send_output(AbortReq(req.rid, told), req)
    rank.sender.send_output("something else", rag)
    assert requests(bench) == [("sglang generate", "rag", status, 1)]
    assert len(rank.sender.sent) == 3


def test_a_batch_that_was_launched_before_its_request_ended_is_billed_to_it(sglang: Any, bench: Any) -> None:
    rank = Rank(sglang, bench, overlap=True)
    rag = request("rag")
    rank.run(prefill(rag))
    rank.run(decode(rag))
    rank.end(rag)
    rank.run(decode(rag))
    assert bench.time_by() == {"rag": pytest.approx(30e-9)}
    assert requests(bench) == [("sglang generate", "rag", "ok", 3)]


def test_an_id_that_comes_again_is_another_request(sglang: Any, bench: Any) -> None:
    rank = Rank(sglang, bench)
    for feature in ("rag", "chat"):
        req = request(feature)
        rank.run(prefill(req))
        rank.end(req)
    assert bench.time_by() == {"rag": pytest.approx(10e-9), "chat": pytest.approx(10e-9)}
    assert [one[1] for one in requests(bench)] == ["rag", "chat"]


def test_its_span_is_a_child_of_the_trace_that_it_came_with(sglang: Any, bench: Any, traced: Any) -> None:
    rank = Rank(sglang, bench)
    rag = request("rag", "x-0", stamp={"tenant": "acme", "traceparent": TRACE, "request": "front/7"})
    batch = prefill(rag)
    batch.prefix_lens, batch.extend_lens = [5], [3]
    rank.run(batch)
    rank.run(decode(rag))
    rag.output_ids.append(2)
    rag.finished_len = 1
    rank.end(rag)
    spans = traced.spans()
    # Steps get none: a server makes a hundred a second.
    assert set(spans) == {"sglang generate"}
    span = spans["sglang generate"]
    assert span.context.trace_id == TRACE_ID
    assert span.parent.span_id == 0xB7AD6B7169203331
    expected = {
        "gputrace.feature": "rag",
        "gputrace.tenant": "acme",
        "gputrace.request.id": "front/7",
        "gen_ai.response.id": "x-0",
        "gen_ai.usage.input_tokens": 8,
        "gen_ai.usage.output_tokens": 1,
        "gen_ai.usage.cache_read.input_tokens": 5,
    }
    assert {name: span.attributes[name] for name in expected} == expected


RANKS = [
    {"pp_rank": 0, "attn_tp_rank": 0, "attn_cp_rank": 0},
    {"pp_rank": 0, "attn_tp_rank": 1, "attn_cp_rank": 0},
    {"pp_rank": 1, "attn_tp_rank": 0, "attn_cp_rank": 0},
    {"pp_rank": 0, "attn_tp_rank": 0, "attn_cp_rank": 1},
]


def test_only_one_rank_counts_and_all_charge(sglang: Any, bench: Any) -> None:
    for ranks in RANKS:
        vars(sglang.ranks).update(ranks)
        rank = Rank(sglang, bench)
        rag = request("rag")
        rank.run(prefill(rag))
        rank.end(rag)
    assert [one.charged_ns for one in steps(bench)] == [10] * 4
    assert bench.time_by() == {"rag": pytest.approx(40e-9)}
    assert requests(bench) == [("sglang generate", "rag", "ok", 1)]
    calls = {row[0][catalogue.OPERATION]: row[1] for row in bench.snapshot().calls}
    assert calls == {"sglang step": 1, "sglang generate": 1}


def test_the_adapter_is_the_variant(sglang: Any, bench: Any) -> None:
    rank = Rank(sglang, bench)
    adapted = request("rag", lora_id="id-of-support")
    unloaded = request("rag", "c", lora_id="id-of-another")
    rank.run(prefill(adapted, unloaded))
    assert set(bench.time_by(catalogue.VARIANT)) == {"support-v2", "id-of-another"}


def test_what_is_no_generation_is_pooling(sglang: Any, bench: Any) -> None:
    rank = Rank(sglang, bench)
    rank.scheduler.is_generation = False
    search = request("search")
    rank.run(prefill(search))
    rank.end(search, FinishReason("length", length=0))
    assert requests(bench) == [("sglang pooling", "search", "ok", 1)]


def test_a_request_without_a_stamp_is_nobodys_and_counted(sglang: Any, bench: Any) -> None:
    stolen = Req("a", "", [0] * 8, SamplingParams({"gputrace": {"feature": "stolen"}}))
    plain = Req("b", "", [0] * 8, SamplingParams())
    Rank(sglang, bench).run(prefill(stolen, plain))
    assert bench.time_by() == {"__none__": pytest.approx(10e-9)}
    assert unmeasured(bench) == {sglang_requests.UNSTAMPED: 2}
    sglang.ranks.attn_tp_rank = 1
    Rank(sglang, bench).run(prefill(Req("b", "", [0] * 8, SamplingParams())))
    assert unmeasured(bench) == {sglang_requests.UNSTAMPED: 2}


def test_a_fault_of_ours_leaves_the_batch_running_and_the_step_counted(
    sglang: Any, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUTRACE_RAISE_FAULTS")
    rank = Rank(sglang, bench)
    rag = request("rag")
    rank.run(prefill(rag))
    rule = sglang_members.Members.of

    def broken(*_: Any) -> Any:
        message = "a fault that was put here"
        raise RuntimeError(message)

    monkeypatch.setattr(sglang_members.Members, "of", broken)
    rank.run(decode(rag))
    monkeypatch.setattr(sglang_members.Members, "of", rule)
    rank.run(decode(rag))
    rank.end(rag)
    assert len(rank.seen) == 3
    assert [one.charged_ns for one in steps(bench)] == [10, 10]
    assert unmeasured(bench) == {sglang_scheduler.UNREADABLE: 1}
    assert faults.count() == 1
    assert requests(bench) == [("sglang generate", "rag", "ok", 2)]


def test_a_scheduler_that_cannot_be_read_at_all_runs_and_is_counted(
    sglang: Any, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUTRACE_RAISE_FAULTS")
    del sglang.ranks.attn_cp_rank
    rank = Rank(sglang, bench)
    rank.run(prefill(request("rag")))
    rank.run(prefill(request("rag")))
    assert len(rank.seen) == 2
    assert unmeasured(bench) == {sglang_scheduler.UNREADABLE: 2}


def test_a_forked_scheduler_begins_anew(sglang: Any, bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank(sglang, bench)
    rag = request("rag")
    rank.run(prefill(rag))
    before = rank.scheduler._gputrace_steps
    process_id = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: process_id + 1)
    rank.run(decode(rag))
    assert rank.scheduler._gputrace_steps is not before
