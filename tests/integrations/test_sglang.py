"""All of SGLang that gputrace wraps, or nothing of it; and what a request takes with it to a scheduler."""

from __future__ import annotations

import asyncio
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import gputrace
from gputrace import faults
from gputrace.integrations import serving_stamps, sglang as integration, sglang_stamps
from gputrace.integrations.serving_stamps import Stamp
from tests.integrations import sglang_stand_in
from tests.integrations.sglang_stand_in import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = "sglang.srt.entrypoints.http_server"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(serving_stamps.MARK_VARIABLE, "")
    monkeypatch.delenv("GPUTRACE_BAGGAGE_KEY", raising=False)
    faults.reset()
    yield
    faults.reset()


@pytest.fixture
def sglang(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    return sglang_stand_in.install(monkeypatch)


@pytest.fixture
def tokenizer(sglang: Any) -> Any:
    integration.register()
    sglang.HookRegistry.apply_hooks()
    return sglang.TokenizerManager()


def request(custom_params: Any = None) -> Any:
    return SimpleNamespace(rid="r", sampling_params=SamplingParams(custom_params))


def targets(sglang: Any) -> list[str]:
    return [target for target, _ in sglang.HookRegistry.hooks]


def test_all_is_wrapped_through_the_registry(sglang: Any) -> None:
    integration.register()
    assert targets(sglang) == [f"{hook.module}.{hook.path}" for hook in integration.HOOKS]


@pytest.mark.parametrize("version", ["0.5.19", "0.5.24", "0.6.0", "0.4.10.post2", "dev"])
def test_other_versions_are_left_as_they_are(
    version: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = sglang_stand_in.install(monkeypatch, version)
    for _ in range(2):
        integration.register()
    assert targets(other) == []
    (line,) = caplog.messages
    assert f"SGLang {version}" in line
    assert "0.5.20 to 0.5.23" in line


@pytest.mark.parametrize("version", ["0.5.20", "0.5.23.post1"])
def test_known_versions_are_wrapped(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sglang_stand_in.install(monkeypatch, version)
    integration.register()
    assert targets(made)


def _changed_scheduler(sglang: Any) -> None:
    sglang.Scheduler.run_batch = lambda self, plan: None


def _changed_tokenizer(sglang: Any) -> None:
    sglang.TokenizerManager._send_batch_request = lambda self, batch: None


def _changed_sender(sglang: Any) -> None:
    del sglang.SenderWrapper.send_output


@pytest.mark.parametrize("change", [_changed_scheduler, _changed_tokenizer, _changed_sender])
def test_where_one_function_is_another_none_is_wrapped(
    change: Any, sglang: Any, caplog: pytest.LogCaptureFixture
) -> None:
    change(sglang)
    integration.register()
    assert targets(sglang) == []
    (line,) = caplog.messages
    assert "gputrace leaves SGLang as it is" in line


def test_batches_without_a_field_are_named(
    sglang: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    batches = sys.modules["sglang.srt.managers.schedule_batch"]
    monkeypatch.setattr(batches, "ScheduleBatch", SamplingParams)
    integration.register()
    assert targets(sglang) == []
    assert "ScheduleBatch has no reqs, forward_mode" in caplog.text


def test_a_process_that_sglang_has_started_imports_nothing_more(
    sglang: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "sglang.srt.entrypoints.engine")
    monkeypatch.delitem(sys.modules, "sglang.srt.managers.tokenizer_manager")
    integration.register()
    assert len(targets(sglang)) == 4
    assert not any("Tokenizer" in target for target in targets(sglang))


def test_a_detokenizer_is_left_as_it_is(sglang: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for hook in integration.HOOKS:
        monkeypatch.delitem(sys.modules, hook.module, raising=False)
    monkeypatch.delitem(sys.modules, "sglang.srt.entrypoints.engine")
    monkeypatch.setitem(
        sys.modules, "sglang.srt.managers.detokenizer_manager", ModuleType("detokenizer_manager")
    )
    integration.register()
    assert targets(sglang) == []


async def test_a_request_takes_along_whom_it_is_billed_to(tokenizer: Any) -> None:
    given = request({"other": 1})
    params = given.sampling_params
    with gputrace.attribute_to(feature="rag", tenant="acme"):
        await tokenizer._send_one_request(given)
    (sent,) = tokenizer.sent
    assert sent is given
    # Several requests may share their parameters.
    assert params.custom_params == {"other": 1}
    assert sent.sampling_params.custom_params["other"] == 1
    assert sglang_stamps.read(sent.sampling_params) == Stamp({"feature": "rag", "tenant": "acme"}, None, {})


async def test_the_scope_is_that_of_the_caller(tokenizer: Any) -> None:
    given = request()
    with gputrace.attribute_to(feature="rag"):
        sending = tokenizer._send_one_request(given)
    # Awaited elsewhere, as by a task of its own.
    await asyncio.ensure_future(sending)
    assert sglang_stamps.read(given.sampling_params).fields == {"feature": "rag"}


async def test_requests_that_are_sent_together_are_stamped_each(tokenizer: Any) -> None:
    with gputrace.attribute_to(feature="nightly"):
        await tokenizer._send_batch_request([request(), request({"gputrace": {"feature": "stolen"}})])
    stamps = [sglang_stamps.read(one.sampling_params) for one in tokenizer.sent]
    assert [stamp.fields for stamp in stamps] == [{"feature": "nightly"}] * 2


async def test_a_stamp_survives_what_carries_it(tokenizer: Any) -> None:
    given = request()
    with gputrace.attribute_to(feature="rag"):
        await tokenizer._send_one_request(given)
    # SGLang's own type of it: texts and numbers, one level deep.
    carried = given.sampling_params.custom_params
    assert json.loads(json.dumps(carried)) == carried
    assert all(isinstance(value, str) for value in carried["gputrace"].values())


async def test_the_call_and_the_trace_travel(tokenizer: Any, bench: Any, traced: Any) -> None:
    given = request()
    with gputrace.span("answer", feature="chat") as call:
        await tokenizer._send_one_request(given)
        inside = call.id
    stamp = sglang_stamps.read(given.sampling_params)
    assert stamp.request == inside
    context = call.span.get_span_context()
    assert stamp.trace["traceparent"].startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-0")


@pytest.mark.parametrize("spoofed", [{"feature": "stolen"}, {"feature": "stolen", "mark": ""}, "text", None])
async def test_what_a_client_wrote_is_always_taken_away(spoofed: Any, tokenizer: Any) -> None:
    given = request({"gputrace": spoofed, "other": 1})
    await tokenizer._send_one_request(given)
    assert sglang_stamps.read(given.sampling_params) == Stamp({}, None, {})
    assert given.sampling_params.custom_params["other"] == 1


@pytest.mark.parametrize("mark", [None, "", "guessed", 7])
def test_a_scheduler_believes_no_client_that_came_past_the_front_end(mark: Any) -> None:
    serving_stamps.prepare()
    given = {"feature": "stolen"} if mark is None else {"feature": "stolen", "mark": mark}
    assert sglang_stamps.read(SamplingParams({"gputrace": given})) is None


@pytest.mark.parametrize("given", [None, {}, ["gputrace"], "gputrace"])
async def test_parameters_of_any_kind_are_borne(given: Any, tokenizer: Any) -> None:
    assert sglang_stamps.read(SamplingParams(given)) is None
    await tokenizer._send_one_request(request(given))
    assert len(tokenizer.sent) == 1


class App:
    """As much of an application as is asked for."""

    def __init__(self) -> None:
        self.user_middleware: list[Any] = []

    def add_middleware(self, kind: Any) -> None:
        self.user_middleware.append(SimpleNamespace(cls=kind))


def test_the_middleware_is_put_around_its_application_once(
    sglang: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ModuleType(SERVER)
    server.app = App()
    monkeypatch.setitem(sys.modules, SERVER, server)
    integration.register()
    integration.register()
    assert [one.cls for one in server.app.user_middleware] == [integration.Middleware]
