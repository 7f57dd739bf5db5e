"""All of vLLM that gputrace wraps, or nothing of it; and what a request takes with it to a worker."""

from __future__ import annotations

import copy
import os
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import gputrace
from gputrace import baggage, faults
from gputrace.integrations import serving_stamps, vllm as integration, vllm_scheduler, vllm_stamps
from gputrace.settings import Settings
from tests.integrations import vllm_stand_in

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(serving_stamps.MARK_VARIABLE, "")
    monkeypatch.delenv("GPUTRACE_BAGGAGE_KEY", raising=False)
    faults.reset()
    yield
    faults.reset()


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    return vllm_stand_in.install(monkeypatch)


class Params:
    """Sampling parameters as vLLM's, as far as they matter."""

    def __init__(self, extra_args: dict[str, Any] | None = None) -> None:
        self.extra_args = extra_args


class PoolingParams:
    def __init__(self, extra_kwargs: dict[str, Any] | None = None) -> None:
        self.extra_kwargs = extra_kwargs


def is_wrapped(function: Any) -> bool:
    return hasattr(function, "__gputrace_original__")


def test_registered_twice_is_registered_once(vllm: Any) -> None:
    integration.register()
    first = vllm.WorkerWrapperBase.execute_model
    integration.register()
    assert vllm.WorkerWrapperBase.execute_model is first
    for patch in integration.PATCHES:
        owner, name = patch.path.split(".")
        assert is_wrapped(getattr(getattr(vllm, owner), name)), patch.path
    integration.restore()
    assert not is_wrapped(vllm.WorkerWrapperBase.execute_model)
    worker = vllm_stand_in.Worker(lambda: None)
    assert vllm.WorkerWrapperBase(worker).sample_tokens("grammar") == ("sampled", "grammar")


def nothing_is_wrapped(vllm: Any) -> bool:
    names = [patch.path.split(".") for patch in integration.PATCHES]
    return not any(is_wrapped(vars(getattr(vllm, owner)).get(name)) for owner, name in names)


@pytest.mark.parametrize("version", ["0.11.2", "0.34.0", "1.0.0"])
def test_other_versions_are_left_as_they_are(
    version: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = vllm_stand_in.install(monkeypatch, version)
    for _ in range(2):
        integration.register()
    assert nothing_is_wrapped(other)
    assert "sample_tokens" not in vars(other.WorkerWrapperBase)
    (line,) = caplog.messages
    assert f"vLLM {version}" in line
    assert "0.12 to 0.33" in line


@pytest.mark.parametrize("version", ["0.12.0", "0.33.4", "dev"])
def test_known_versions_and_builds_without_a_number_are_wrapped(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = vllm_stand_in.install(monkeypatch, version)
    integration.register()
    assert is_wrapped(made.WorkerWrapperBase.execute_model)


def _changed_worker(vllm: Any) -> None:
    vllm.WorkerWrapperBase.execute_model = lambda self, plan: None


def _changed_engine(vllm: Any) -> None:
    vllm.AsyncLLM.add_request = lambda self, request: None


def _changed_scheduler(vllm: Any) -> None:
    del vllm.Scheduler._free_request


@pytest.mark.parametrize("change", [_changed_worker, _changed_engine, _changed_scheduler])
def test_where_one_function_is_another_none_is_wrapped(
    change: Any, vllm: Any, caplog: pytest.LogCaptureFixture
) -> None:
    change(vllm)
    integration.register()
    assert nothing_is_wrapped(vllm)
    assert not {"sample_tokens", "execute_dummy_batch"} & set(vars(vllm.WorkerWrapperBase))
    (line,) = caplog.messages
    assert "gputrace leaves vLLM as it is" in line


def test_records_without_a_field_are_named(
    vllm: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    records = sys.modules["vllm.v1.core.sched.output"]
    monkeypatch.setattr(records, "SchedulerOutput", vllm_stand_in.CachedRequestData)
    integration.register()
    assert nothing_is_wrapped(vllm)
    assert "SchedulerOutput.num_scheduled_tokens" in caplog.text


async def test_a_request_takes_along_whom_it_is_billed_to(vllm: Any) -> None:
    integration.register()
    engine = vllm.AsyncLLM()
    given = Params({"other": 1})
    with gputrace.attribute_to(feature="rag", tenant="acme"):
        assert await engine.add_request("r", "prompt", given, arrival_time=3.0) == "r"
    ((name, prompt, params, arrival),) = engine.added
    assert (name, prompt, arrival) == ("r", "prompt", 3.0)
    assert given.extra_args == {"other": 1}
    assert params.extra_args["other"] == 1
    stamp = vllm_stamps.read(params)
    assert stamp == serving_stamps.Stamp({"feature": "rag", "tenant": "acme"}, None, {})


def test_offline_and_by_name(vllm: Any) -> None:
    integration.register()
    engine = vllm.LLMEngine()
    with gputrace.attribute_to(feature="batch"):
        engine.add_request(params=PoolingParams(), request_id="r", prompt="p")
    stamp = vllm_stamps.read(engine.added[0][2])
    assert stamp is not None
    assert stamp.fields == {"feature": "batch"}


def test_the_call_and_the_trace_travel(vllm: Any, bench: Any, traced: Any) -> None:
    integration.register()
    engine = vllm.LLMEngine()
    with gputrace.span("answer", feature="chat") as call:
        engine.add_request("r", "p", Params())
        inside = call.id
    stamp = vllm_stamps.read(engine.added[0][2])
    assert stamp is not None
    assert stamp.request == inside
    context = call.span.get_span_context()
    assert stamp.trace["traceparent"].startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-0")


@pytest.mark.parametrize("spoofed", [{"feature": "stolen"}, {"feature": "stolen", "mark": ""}, "text", None])
def test_what_a_client_wrote_is_always_taken_away(spoofed: Any, vllm: Any) -> None:
    integration.register()
    engine = vllm.LLMEngine()
    engine.add_request("r", "p", Params({"gputrace": spoofed, "other": 1}))
    params = engine.added[0][2]
    assert vllm_stamps.read(params) == serving_stamps.Stamp({}, None, {})
    assert params.extra_args["other"] == 1


@pytest.mark.parametrize("mark", [None, "", "guessed", 7])
def test_a_worker_believes_no_client_that_came_past_the_front_end(mark: Any) -> None:
    serving_stamps.prepare()
    given = {"feature": "stolen"} if mark is None else {"feature": "stolen", "mark": mark}
    assert vllm_stamps.read(Params({"gputrace": given})) is None


def test_without_a_mark_nothing_is_believed() -> None:
    assert vllm_stamps.read(Params({"gputrace": {"feature": "stolen", "mark": ""}})) is None


def test_a_request_prepared_outside_has_parameters_of_its_own(vllm: Any) -> None:
    integration.register()
    engine = vllm.LLMEngine()
    prepared = SimpleNamespace(
        sampling_params=Params({"gputrace": {"feature": "stolen"}}), pooling_params=None
    )
    with gputrace.attribute_to(feature="rag"):
        engine.add_request("r", prepared, Params())
    stamp = vllm_stamps.read(prepared.sampling_params)
    assert stamp is not None
    assert stamp.fields == {"feature": "rag"}


def test_the_mark_of_a_server_goes_on_to_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    serving_stamps.prepare()
    first = os.environ[serving_stamps.MARK_VARIABLE]
    assert len(first) == 32
    serving_stamps.prepare()
    assert os.environ[serving_stamps.MARK_VARIABLE] == first
    marks = set()
    for key in ("a" * 32, "a" * 32, "b" * 32):
        monkeypatch.setenv(serving_stamps.MARK_VARIABLE, "")
        monkeypatch.setenv("GPUTRACE_BAGGAGE_KEY", key)
        serving_stamps.prepare()
        marks.add(os.environ[serving_stamps.MARK_VARIABLE])
    # Machines that share the key believe each other, and the key itself is told to nobody.
    assert len(marks) == 2
    assert not marks & {"a" * 32, "b" * 32}


def request(name: str, status: str, **more: Any) -> Any:
    given = {"num_output_tokens": 5, "num_preemptions": 1, "sampling_params": SimpleNamespace(stop=[])}
    return SimpleNamespace(request_id=name, status=SimpleNamespace(name=status), **{**given, **more})


@pytest.mark.parametrize(
    ("status", "stop", "told"),
    [
        ("FINISHED_STOPPED", [], None),
        ("FINISHED_LENGTH_CAPPED", [], None),
        ("FINISHED_ABORTED", [], "cancelled"),
        # The front end aborts what it has found a stop string in.
        ("FINISHED_ABORTED", ["."], None),
        ("FINISHED_ERROR", [], "error"),
    ],
)
def test_how_a_request_ended_travels_with_the_next_output(
    status: str, stop: list[str], told: str | None, vllm: Any
) -> None:
    integration.register()
    scheduler = vllm.Scheduler()
    params = SimpleNamespace(stop=stop)
    assert scheduler._free_request(request("r", status, sampling_params=params)) == (None, None)
    output = copy.deepcopy(scheduler.schedule())
    assert vllm_scheduler.ended(output) == {"r": vllm_scheduler.Ended(told, status, 5, 1)}
    assert vllm_scheduler.ended(scheduler.schedule()) == {}


async def seen_in(headers: list[tuple[bytes, bytes]], kind: str = "http") -> dict[str, Any]:
    """What the application behind the middleware would stamp on a request."""
    seen: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.update(vllm_stamps.stamped(Params()).extra_args["gputrace"])

    await integration.Middleware(app)({"type": kind, "headers": headers}, None, None)
    del seen["mark"]
    return seen


async def test_trusted_baggage_and_the_trace_are_taken_from_a_request() -> None:
    headers = [
        (b"Traceparent", TRACE.encode()),
        (b"baggage", b"gputrace.feature=rag,gputrace.tenant=acme"),
    ]
    baggage.use(Settings(trusted_baggage=("gputrace.feature", "gputrace.tenant"), trust=lambda _: True))
    try:
        assert await seen_in(headers) == {"feature": "rag", "tenant": "acme", "traceparent": TRACE}
        assert await seen_in(headers, "lifespan") == {}
        baggage.use(Settings())
        assert await seen_in(headers) == {"traceparent": TRACE}
        assert await seen_in([]) == {}
    finally:
        baggage.use(Settings())
        baggage.reset()
        faults.reset()
    assert gputrace.current().feature == "__none__"
