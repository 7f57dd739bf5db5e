"""Steps in a worker of vLLM: one call each, split among the requests that it serves."""

from __future__ import annotations

import functools
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import gputrace
from gputrace import catalogue, faults
from gputrace.integrations import (
    serving_stamps,
    serving_steps,
    vllm as integration,
    vllm_members,
    vllm_requests,
    vllm_scheduler,
    vllm_worker,
)
from tests.integrations import vllm_stand_in
from tests.integrations.vllm_recorded import new, output

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
TRACE = f"00-{TRACE_ID:032x}-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(serving_stamps.MARK_VARIABLE, "m" * 32)
    monkeypatch.setattr(serving_steps, "configure", lambda: None)
    # It exports for real, when it pleases.
    monkeypatch.setattr(vllm_worker, "Exports", lambda: SimpleNamespace(worked=lambda: None))
    faults.reset()
    yield
    faults.reset()


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = vllm_stand_in.install(monkeypatch)
    integration.register()
    return made


class Rank:
    """One worker behind its wrapper; each of its two halves of a step takes 10 ns."""

    def __init__(self, vllm: Any, bench: Any, rank: int = 0) -> None:
        self.worker = vllm_stand_in.Worker(lambda: bench.time.advance(10))
        self.wrapper = vllm.WorkerWrapperBase(self.worker, rank)

    def step(self, step: dict[str, Any], *news: Any, **more: Any) -> None:
        told = output(step, **more)
        told.scheduled_new_reqs = list(news)
        result = self.wrapper.execute_model(told)
        if result is None:
            assert self.wrapper.sample_tokens("grammar") == ("sampled", "grammar")

    def end(self, **how: tuple[Any, ...]) -> None:
        """Tell the worker of requests that have ended: an output that schedules nothing."""
        self.worker.pools = True
        self.step({"finished": list(how)}, gputrace_ended=how)


def stamp(**fields: str) -> dict[str, Any]:
    return {"gputrace": {**fields, "mark": "m" * 32}}


def rag(name: str = "a", prompt: int = 8, **more: Any) -> Any:
    return new(name, prompt, None, 0, extra=stamp(feature="rag", tenant="acme"), **more)


def chat(name: str = "b", prompt: int = 8, **more: Any) -> Any:
    return new(name, prompt, None, 0, extra=stamp(feature="chat", tenant="globex"), **more)


def steps(bench: Any) -> list[Any]:
    return [one for one in bench.settled() if one.operation.startswith("vllm step")]


def requests(bench: Any) -> list[tuple[str, str, str, int]]:
    """Operation, feature, status and number of steps of each request that has ended."""
    return [
        (one.operation, one.feature, one.status, one.call.request.calls)
        for one in bench.settled()
        if one.call.site.is_request
    ]


def unmeasured(bench: Any) -> dict[str, int]:
    return {row[0][catalogue.LOSS_REASON]: row[1] for row in bench.snapshot().unmeasured}


def test_a_step_lasts_from_its_launch_to_its_last_sample(vllm: Any, bench: Any) -> None:
    rank = Rank(vllm, bench)
    rank.step({"scheduled": {"a": 8, "b": 8}}, rag(), chat())
    rank.step({"known": [["a", 8, 1]], "scheduled": {"a": 1}})
    both, alone = steps(bench)
    assert (both.charged_ns, both.model, both.feature) == (20, "tiny", "__shared__")
    assert (alone.charged_ns, alone.feature, alone.tenant) == (20, "rag", "acme")
    assert bench.time_by() == {"rag": pytest.approx(30e-9), "chat": pytest.approx(10e-9)}


def test_between_steps_nothing_is_held_and_no_scope_is_left(vllm: Any, bench: Any) -> None:
    rank = Rank(vllm, bench)
    rank.step({"scheduled": {"a": 8}}, rag())
    assert gputrace.current().feature == "__none__"
    bench.time.advance(1_000)
    rank.step({"known": [["a", 8, 1]], "scheduled": {"a": 1}})
    assert [one.charged_ns for one in steps(bench)] == [20, 20]


def test_pooling_ends_where_nothing_is_sampled(vllm: Any, bench: Any) -> None:
    rank = Rank(vllm, bench)
    rank.worker.pools = True
    pooled = rag(sampling_params=None, pooling_params=SimpleNamespace(extra_kwargs=stamp(feature="search")))
    rank.step({"scheduled": {"a": 8}}, pooled)
    (one,) = steps(bench)
    assert (one.charged_ns, one.feature) == (10, "search")
    rank.end(a=(None, "FINISHED_STOPPED", 0, 0))
    assert requests(bench) == [("vllm pooling", "search", "ok", 1)]


def test_an_output_that_schedules_nothing_is_no_step(vllm: Any, bench: Any) -> None:
    rank = Rank(vllm, bench)
    rank.end()
    assert not steps(bench)
    assert not unmeasured(bench)


def test_dummy_batches_are_overhead(vllm: Any, bench: Any) -> None:
    rank = Rank(vllm, bench)
    rank.wrapper.execute_dummy_batch()
    assert bench.time_by() == {"__overhead__": pytest.approx(10e-9)}


@pytest.mark.parametrize("half", ["execute_model", "sample_tokens", "execute_dummy_batch"])
def test_a_step_that_raises_is_charged_and_failed(half: str, vllm: Any, bench: Any) -> None:
    rank = Rank(vllm, bench)

    def failing(*_: Any) -> None:
        bench.time.advance(5)
        message = "out of memory"
        raise MemoryError(message)

    setattr(rank.worker, half, failing)
    whole = rank.wrapper.execute_dummy_batch
    if half != "execute_dummy_batch":
        whole = functools.partial(rank.step, {"scheduled": {"a": 8}}, rag())
    with pytest.raises(MemoryError):
        whole()
    (one,) = [one for one in bench.settled() if not one.call.site.is_request]
    assert (one.status, one.charged_ns) == ("error", 15 if half == "sample_tokens" else 5)
    assert gputrace.current().feature == "__none__"


def test_a_step_whose_samples_never_came_ends_where_the_next_begins(vllm: Any, bench: Any) -> None:
    rank = Rank(vllm, bench)
    told = output({"scheduled": {"a": 8}})
    told.scheduled_new_reqs = [rag()]
    rank.wrapper.execute_model(told)
    rank.step({"known": [["a", 8, 1]], "scheduled": {"a": 1}})
    assert [one.charged_ns for one in steps(bench)] == [10, 20]


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ((None, "FINISHED_LENGTH_CAPPED", 3, 0), "ok"),
        (("cancelled", "FINISHED_ABORTED", 1, 0), "cancelled"),
        (("error", "FINISHED_ERROR", 1, 0), "error"),
    ],
)
def test_a_request_is_told_with_its_status_and_all_its_steps(
    how: Any, status: str, vllm: Any, bench: Any
) -> None:
    rank = Rank(vllm, bench)
    rank.step({"scheduled": {"a": 8}}, rag())
    rank.step({"known": [["a", 8, 1]], "scheduled": {"a": 1}})
    rank.end(a=how)
    assert requests(bench) == [("vllm generate", "rag", status, 2)]
    ((_, charged_s),) = bench.snapshot().requests["gputrace.request.time"]
    assert charged_s == pytest.approx(40e-9)


def test_its_span_is_a_child_of_the_trace_that_it_came_with(vllm: Any, bench: Any, traced: Any) -> None:
    rank = Rank(vllm, bench)
    given = stamp(feature="rag", tenant="acme", traceparent=TRACE, request="front/7")
    rank.step({"scheduled": {"cmpl-x-0": 8}}, new("cmpl-x-0", 8, None, 0, extra=given))
    rank.end(**{"cmpl-x-0": (None, "FINISHED_STOPPED", 1, 0)})
    spans = traced.spans()
    # Steps get none: a server makes a hundred a second.
    assert set(spans) == {"vllm generate"}
    span = spans["vllm generate"]
    assert span.context.trace_id == TRACE_ID
    assert span.parent.span_id == 0xB7AD6B7169203331
    expected = {
        "gputrace.feature": "rag",
        "gputrace.tenant": "acme",
        "gputrace.request.id": "front/7",
        "gen_ai.response.id": "cmpl-x-0",
        "gen_ai.usage.input_tokens": 8,
        "gen_ai.usage.output_tokens": 1,
        "gen_ai.usage.cache_read.input_tokens": 0,
    }
    assert {name: span.attributes[name] for name in expected} == expected


def test_a_request_that_was_not_sampled_gets_no_span(vllm: Any, bench: Any, traced: Any) -> None:
    rank = Rank(vllm, bench)
    given = stamp(feature="rag", traceparent=TRACE.removesuffix("01") + "00")
    rank.step({"scheduled": {"a": 8}}, new("a", 8, None, 0, extra=given))
    rank.end(a=(None, "FINISHED_STOPPED", 1, 0))
    assert not traced.spans()
    assert requests(bench) == [("vllm generate", "rag", "ok", 1)]


def test_only_one_rank_counts_and_all_charge(vllm: Any, bench: Any) -> None:
    ranks = [Rank(vllm, bench, rank) for rank in range(2)]
    for rank in ranks:
        rank.step({"scheduled": {"a": 8}}, rag())
        rank.end(a=(None, "FINISHED_STOPPED", 1, 0))
    assert [one.charged_ns for one in steps(bench)] == [20, 20]
    assert bench.time_by() == {"rag": pytest.approx(40e-9)}
    assert requests(bench) == [("vllm generate", "rag", "ok", 1)]


def test_the_adapter_is_the_variant(vllm: Any, bench: Any) -> None:
    rank = Rank(vllm, bench)
    adapted = rag(lora_request=SimpleNamespace(lora_name="support-v2"))
    rank.step({"scheduled": {"a": 8, "b": 8}}, adapted, chat())
    assert bench.time_by(catalogue.VARIANT) == {"support-v2": pytest.approx(10e-9), "": pytest.approx(10e-9)}


def test_a_request_without_a_stamp_is_nobodys_and_counted(vllm: Any, bench: Any) -> None:
    rank = Rank(vllm, bench)
    stolen = new("a", 8, None, 0, extra={"gputrace": {"feature": "stolen"}})
    rank.step({"scheduled": {"a": 8, "b": 8}}, stolen, new("b", 8, None, 0))
    assert bench.time_by() == {"__none__": pytest.approx(20e-9)}
    assert unmeasured(bench) == {vllm_requests.UNSTAMPED: 2}
    other = Rank(vllm, bench, 1)
    other.step({"scheduled": {"b": 8}}, new("b", 8, None, 0))
    assert unmeasured(bench) == {vllm_requests.UNSTAMPED: 2}


def test_a_request_that_was_not_seen_to_begin_is_counted(vllm: Any, bench: Any) -> None:
    rank = Rank(vllm, bench)
    rank.step({"known": [["a", 8, 1]], "scheduled": {"a": 1}})
    assert bench.time_by() == {"__none__": pytest.approx(20e-9)}
    assert unmeasured(bench) == {vllm_worker.UNSEEN_BEGINNING: 1}
    rank.end(a=(None, "FINISHED_STOPPED", 1, 0))
    assert requests(bench) == []


def test_a_fault_of_ours_leaves_the_request_served_and_the_step_counted(
    vllm: Any, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUTRACE_RAISE_FAULTS")
    rank = Rank(vllm, bench)
    rank.step({"scheduled": {"a": 8}}, rag())
    rule = vllm_members.Members.of

    def broken(*_: Any) -> Any:
        message = "a fault that was put here"
        raise RuntimeError(message)

    monkeypatch.setattr(vllm_members.Members, "of", broken)
    rank.step({"known": [["a", 8, 1]], "scheduled": {"a": 1}})
    monkeypatch.setattr(vllm_members.Members, "of", rule)
    rank.step({"known": [["a", 9, 2]], "scheduled": {"a": 1}})
    rank.end(a=("cancelled", "FINISHED_ABORTED", 3, 0))
    assert [one.charged_ns for one in steps(bench)] == [20, 20]
    assert unmeasured(bench) == {vllm_worker.UNREADABLE: 1}
    assert faults.count() == 1
    assert requests(bench) == [("vllm generate", "rag", "cancelled", 2)]


def test_steps_of_compiled_graphs_are_counted(vllm: Any, bench: Any) -> None:
    assert vllm.RayWorkerWrapper().execute_model_ray("input") == "input"
    assert unmeasured(bench) == {vllm_worker.COMPILED_DAG: 1}


def test_a_forked_worker_begins_anew(vllm: Any, bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank(vllm, bench)
    rank.step({"scheduled": {"a": 8}}, rag())
    process_id = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: process_id + 1)
    rank.step({"known": [["a", 8, 1]], "scheduled": {"a": 1}})
    assert unmeasured(bench) == {vllm_worker.UNSEEN_BEGINNING: 1}


def test_an_id_that_comes_again_is_another_request(vllm: Any, bench: Any) -> None:
    rank = Rank(vllm, bench)
    rank.step({"scheduled": {"a": 8}}, rag())
    rank.step(
        {"scheduled": {"a": 4}, "finished": ["a"]},
        chat("a", 4),
        **{vllm_scheduler.ATTRIBUTE: {"a": (None, "FINISHED_STOPPED", 1, 0)}},
    )
    assert bench.time_by() == {"rag": pytest.approx(20e-9), "chat": pytest.approx(20e-9)}
    assert requests(bench) == [("vllm generate", "rag", "ok", 1)]


def test_what_is_left_is_exported_when_a_worker_stops(
    vllm: Any, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[float] = []
    monkeypatch.setattr(gputrace, "flush", flushed.append)
    rank = Rank(vllm, bench)
    rank.wrapper.shutdown()
    assert rank.wrapper.stopped
    assert flushed == []
    rank.end()
    rank.wrapper.shutdown()
    assert flushed == [1.8]
