"""Models of Triton's Python backend without a server: whom `execute` is billed to, and how it ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import propagate, trace as trace_api

import gputrace
from gputrace import baggage, faults, settings
from gputrace.integrations import triton, triton_requests

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "a-key-that-services-share"


class Tensor:
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def shape(self) -> list[int]:
        return [self._rows, 2]


class Asked:
    """What `execute` gets of one request."""

    def __init__(self, rows: int = 1, **parameters: Any) -> None:
        self._rows, self._parameters = rows, parameters

    def inputs(self) -> list[Tensor]:
        return [Tensor(self._rows)]

    def parameters(self) -> str:
        return json.dumps(self._parameters) if self._parameters else ""


class Answered:
    def __init__(self, *, failed: bool = False) -> None:
        self._failed = failed

    def has_error(self) -> bool:
        return self._failed


@pytest.fixture(autouse=True)
def _believed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(baggage, "_policy", None)
    baggage.use(settings.read(environment={}, baggage_key=KEY))
    faults.reset()
    yield
    faults.reset()


def asked_for(feature: str, rows: int = 1) -> Asked:
    with gputrace.attribute_to(feature=feature):
        return Asked(rows, **triton.carrier())


def arguments(*, largest: int = 8, decoupled: bool = False, **more: str) -> dict[str, str]:
    configuration = {"max_batch_size": largest, "model_transaction_policy": {"decoupled": decoupled}}
    return {"model_name": "encoder", "model_config": json.dumps(configuration), **more}


def loaded(kind: type[Any], **configured: Any) -> Any:
    model = kind()
    model.initialize(arguments(**configured))
    return model


def encoder(bench: Any, **options: Any) -> type[Any]:
    class TritonPythonModel:
        def execute(self, requests: list[Any]) -> Any:
            bench.time.advance(120)
            return [Answered(failed=request.inputs()[0].shape() == [9, 2]) for request in requests]

    return (
        triton.instrument(**options)(TritonPythonModel) if options else triton.instrument(TritonPythonModel)
    )


def charged(bench: Any) -> dict[str, int]:
    return {name: round(seconds * 1e9) for name, seconds in bench.time_by().items() if seconds}


def test_a_batch_is_split_by_rows(bench: Any) -> None:
    model = loaded(encoder(bench))
    answers = model.execute([asked_for("search", 2), asked_for("chat", 3), Asked(1)])
    assert len(answers) == 3
    assert charged(bench) == {"search": 40, "chat": 60, "__none__": 20}
    assert bench.requests() == [
        ("encoder", "search", "ok", 1),
        ("encoder", "chat", "ok", 1),
        ("encoder", "__none__", "ok", 1),
    ]
    (batch,) = [one for one in bench.settled() if one.call.site.is_batch]
    assert (batch.operation, batch.model, batch.charged_ns) == ("execute encoder", "encoder", 120)


def test_without_rows_all_weigh_alike_and_the_user_may_say(bench: Any) -> None:
    loaded(encoder(bench), largest=0).execute([asked_for("search", 2), asked_for("chat", 4)])
    assert charged(bench) == {"search": 60, "chat": 60}
    weighed = encoder(bench, weight=lambda request: request.inputs()[0].shape()[0] ** 2)
    loaded(weighed, largest=0).execute([asked_for("search", 1), asked_for("chat", 2)])
    assert charged(bench) == {"search": 60 + 24, "chat": 60 + 96}


def test_a_weight_that_raises_breaks_nothing(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    model = loaded(encoder(bench, weight=lambda _: 1 / 0))
    model.execute([asked_for("search"), asked_for("chat")])
    assert charged(bench) == {"search": 60, "chat": 60}
    assert "the weight of a Triton request raised" in caplog.text


def test_a_request_that_is_answered_with_an_error_is_one(bench: Any) -> None:
    loaded(encoder(bench)).execute([asked_for("search", 9), asked_for("chat", 1)])
    assert {feature: status for _, feature, status, _ in bench.requests()} == {
        "search": "error",
        "chat": "ok",
    }


def test_an_exception_ends_everything(bench: Any) -> None:
    @triton.instrument
    class TritonPythonModel:
        def execute(self, requests: list[Any]) -> Any:
            bench.time.advance(10)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        loaded(TritonPythonModel).execute([asked_for("search"), asked_for("chat")])
    assert {one.status for one in bench.settled()} == {"error"}
    assert charged(bench) == {"search": 5, "chat": 5}


def test_nothing_is_believed_that_is_not_signed(bench: Any) -> None:
    signed = asked_for("search")
    model = loaded(encoder(bench))
    model.execute([Asked(baggage="gputrace.feature=spoofed")])
    # As a header, and as a parameter of the client's own beside it.
    both = json.loads(signed.parameters())
    model.execute([Asked(**both, Baggage=both["baggage"])])
    assert set(charged(bench)) == {"__none__"}
    model.execute([Asked(Baggage=both["baggage"], other=3)])
    assert set(charged(bench)) == {"__none__", "search"}


def test_what_the_loading_process_is_billed_to_says_nothing_of_requests(bench: Any) -> None:
    model = loaded(encoder(bench))
    with gputrace.attribute_to(feature="start"):
        model.execute([Asked(), asked_for("chat")])
    assert set(charged(bench)) == {"__none__", "chat"}


def test_the_trace_goes_on(bench: Any, traced: Any) -> None:
    caller = trace_api.SpanContext(0x1234, 0x56, is_remote=True, trace_flags=trace_api.TraceFlags(1))
    carried: dict[str, str] = {}
    propagate.inject(carried, trace_api.set_span_in_context(trace_api.NonRecordingSpan(caller)))
    loaded(encoder(bench)).execute([Asked(Traceparent=carried["traceparent"]), Asked()])
    spans = traced.spans()
    infers = [span for span in traced._exporter.get_finished_spans() if span.name == "infer encoder"]
    assert caller.trace_id in {span.context.trace_id for span in infers}
    assert {link.context.span_id for link in spans["execute encoder"].links} == {
        span.context.span_id for span in infers
    }


def test_one_that_is_decoupled_holds_nothing_itself(bench: Any) -> None:
    @triton.instrument
    class TritonPythonModel:
        def execute(self, requests: list[Any]) -> None:
            bench.time.advance(100)
            for _ in requests:
                bench.work(30)

    loaded(TritonPythonModel, decoupled=True).execute([asked_for("search", 1), asked_for("chat", 2)])
    assert charged(bench) == {"search": 20, "chat": 40}
    assert {status for _, _, status, _ in bench.requests()} == {"ok"}


async def test_a_coroutine_holds_while_its_own_code_runs(bench: Any) -> None:
    import asyncio

    @triton.instrument
    class TritonPythonModel:
        async def execute(self, requests: list[Any]) -> Any:
            bench.time.advance(30)
            waiting = asyncio.ensure_future(wait())
            await waiting
            return [Answered() for _ in requests]

    async def wait() -> None:
        bench.time.advance(1_000)

    await loaded(TritonPythonModel).execute([asked_for("search"), asked_for("chat")])
    assert charged(bench) == {"search": 15, "chat": 15}


def test_what_the_model_defines_still_runs(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[float] = []
    monkeypatch.setattr(gputrace, "flush", lambda **given: flushed.append(given["timeout"]))
    seen: list[Any] = []

    @triton.instrument(hold="none", variant="fp16")
    class TritonPythonModel:
        def initialize(self, args: Any) -> None:
            seen.append(args["model_name"])

        def execute(self, requests: list[Any]) -> Any:
            bench.work(10)
            return [Answered() for _ in requests]

        def finalize(self) -> None:
            seen.append("end")

    assert triton.instrument(TritonPythonModel) is TritonPythonModel
    model = loaded(TritonPythonModel)
    model.execute([asked_for("chat")])
    model.finalize()
    assert seen == ["encoder", "end"]
    assert flushed == [triton.FLUSH_TIMEOUT_S]
    assert charged(bench) == {"chat": 10}
    assert {one.variant for one in bench.settled() if one.call.site.is_batch} == {"fp16"}


def test_an_instance_on_a_gpu_is_timed_there() -> None:
    on_gpu = triton._Model(arguments(model_instance_kind="GPU", model_instance_device_id="1"))
    assert on_gpu.devices == ["cuda:1"]
    assert triton._Model(arguments(model_instance_kind="CPU", model_instance_device_id="0")).devices is None


def test_the_plugin_adds_to_the_headers_of_a_request() -> None:
    class Request:
        headers: dict[str, str] | None = None

    with gputrace.attribute_to(feature="chat"):
        triton.ClientPlugin()(Request)
    assert Request.headers is not None
    assert "gputrace.feature=chat" in Request.headers["baggage"]
    assert triton_requests._carried(Asked(**Request.headers)).keys() <= {*triton_requests._CARRIED}


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(TypeError, match="has no execute"):
        triton.instrument(int)
