"""Spans of calls: their parents, times, statuses and samplers, on a provider of the user's."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, TraceIdRatioBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, StatusCode, TraceFlags

import gputrace
from gputrace import catalogue, faults, identity, lifecycle
from gputrace.telemetry import spans


def remote_parent(*, sampled: bool) -> NonRecordingSpan:
    return NonRecordingSpan(SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=TraceFlags(int(sampled))))


def test_parents_are_real_above_and_below(users):
    users.set_tracer_provider()
    tracer = trace.get_tracer("mine")
    with tracer.start_as_current_span("request"), gputrace.span("outer"):
        current = trace.get_current_span()
        with gputrace.span("inner"), tracer.start_as_current_span("mine"):
            pass
        assert trace.get_current_span() is current
    found = users.spans()
    assert found["request"].parent is None
    assert found["outer"].parent.span_id == found["request"].context.span_id
    assert found["inner"].parent.span_id == found["outer"].context.span_id
    assert found["mine"].parent.span_id == found["inner"].context.span_id
    assert len({span.context.trace_id for span in found.values()}) == 1


def test_logs_hang_under_the_call(users):
    """Anything that asks for the current span: the SDK's log handler, logging instrumentation."""
    users.set_tracer_provider()

    @gputrace.track(operation="work")
    def work():
        return trace.get_current_span().get_span_context()

    seen = work()
    assert seen == users.spans()["work"].context
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_span_ends_when_its_call_did_however_late_it_is_settled(users):
    users.set_tracer_provider()
    with gputrace.span("first"):
        pass
    with lifecycle._process.runtime.settler._state_lock:
        # Nothing is settled meanwhile.
        before = time.time_ns()
        with gputrace.span("work"):
            time.sleep(0.02)
        after = time.time_ns()
        time.sleep(0.3)
    span = users.spans()["work"]
    # Between the wall clock and ours lies nothing like the time that it waited.
    assert before - 100_000_000 <= span.start_time
    assert span.end_time - span.start_time >= 20_000_000
    assert span.end_time <= after + 100_000_000


def test_a_child_never_outlasts_or_precedes_its_parent(users):
    users.set_tracer_provider()
    for _ in range(50):
        with gputrace.span("outer"), gputrace.span("inner"):
            pass
    assert gputrace.flush()
    finished = users.exporter.get_finished_spans()
    outer = {span.context.span_id: span for span in finished if span.name == "outer"}
    inner = [span for span in finished if span.name == "inner"]
    assert len(inner) == 50
    for span in inner:
        parent = outer[span.parent.span_id]
        assert parent.start_time <= span.start_time <= span.end_time <= parent.end_time


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_wall_clock_that_was_set_is_followed(users, monkeypatch, hours):
    """As after a machine slept: its monotonic clock did not go on."""
    users.set_tracer_provider()
    monkeypatch.setattr(spans, "wall_offset_ns", spans.wall_offset_ns + hours * 3_600 * 10**9)
    with gputrace.span("across"):
        spans.wall_offset_ns -= 1_000_000_000  # set back while a call is open
    across = users.spans()["across"]
    assert across.end_time >= across.start_time
    with gputrace.span("after"):
        pass
    assert abs(users.spans()["after"].start_time - time.time_ns()) < 60 * 10**9


def test_what_a_span_says_of_its_call(users):
    users.set_tracer_provider()

    @gputrace.track(model="m", variant="v", stage="s", attributes={"shop.basket": 3, "shop.vip": True})
    def work():
        time.sleep(0.01)

    with gputrace.attribute_to(feature="search", tenant="acme"):
        work()
    attributes = dict(users.spans()[f"{work.__qualname__}"].attributes)
    assert attributes.pop(catalogue.CALL_ID).startswith(f"{identity.instance_id()}/")
    device, held = attributes.pop(catalogue.CALL_DEVICE_TIME), attributes.pop(catalogue.CALL_HELD_TIME)
    assert 0.01 <= device == held < 5
    assert "/" in attributes.pop(catalogue.HW_ID)
    assert attributes == {
        "gputrace.feature": "search",
        "gputrace.tenant": "acme",
        "gputrace.operation": work.__qualname__,
        "gputrace.model": "m",
        "gputrace.variant": "v",
        "gputrace.stage": "s",
        "gputrace.status": "ok",
        "gputrace.time.source": "host",
        "code.function.name": work.__qualname__,
        "shop.basket": 3,
        "shop.vip": True,
    }


def test_every_attribute_of_ours_on_spans_is_in_the_catalogue(users):
    users.set_tracer_provider()
    with gputrace.attribute_to(feature="f", tenant="t", model="m", variant="v", stage="s"):
        with gputrace.span("work"):
            pass
        with pytest.raises(KeyError), gputrace.span("failed"):
            raise KeyError
    names = {name for span in users.spans().values() for name in span.attributes}
    known = {attribute.name for attribute in catalogue.ATTRIBUTES}
    assert names <= known | {"code.function.name"}
    assert {catalogue.CALL_ID, catalogue.ERROR_TYPE, catalogue.HW_ID} <= names


class BoomError(Exception):
    """Of this module, so that its qualified name is known."""


def test_an_error_is_on_the_span_and_in_the_users_hands(users):
    users.set_tracer_provider()
    with pytest.raises(BoomError, match="too hot"), gputrace.span("work"):
        raise BoomError("too hot")
    span = users.spans()["work"]
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "BoomError: too hot"
    assert span.attributes[catalogue.ERROR_TYPE] == "BoomError"
    assert span.attributes[catalogue.STATUS] == "error"
    [event] = span.events
    assert event.name == "exception"
    assert event.attributes["exception.message"] == "too hot"


async def test_a_cancelled_call_is_no_error(users):
    users.set_tracer_provider()

    @gputrace.track(operation="work")
    async def work():
        await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    span = users.spans()["work"]
    assert span.status.status_code is StatusCode.UNSET
    assert span.attributes[catalogue.STATUS] == "cancelled"
    assert span.attributes[catalogue.ERROR_TYPE] == "CancelledError"
    assert span.events == ()


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("nothing to say")


@pytest.mark.usefixtures("contained")
def test_an_exception_that_cannot_be_shown_is_an_error_all_the_same(users):
    users.set_tracer_provider()
    with pytest.raises(MuteError), gputrace.span("work", attributes={"mine": 1}):
        raise MuteError
    span = users.spans()["work"]
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes[catalogue.ERROR_TYPE] == "MuteError"
    assert span.attributes["mine"] == 1


# --- who decides whether a trace is sampled


def test_an_unsampled_root_is_attached_so_that_nothing_below_begins_a_trace(users, shown):
    """The sampler says no once; asked again below, it would say yes."""

    class Once(TraceIdRatioBased):
        asked = 0

        def should_sample(self, *arguments, **named):
            type(self).asked += 1
            return (ALWAYS_OFF if self.asked == 1 else ALWAYS_ON).should_sample(*arguments, **named)

    users.set_tracer_provider(ParentBased(Once(0.5)))
    users.set_meter_provider()
    with gputrace.span("root"):
        assert trace.get_current_span().get_span_context().is_valid
        with trace.get_tracer("mine").start_as_current_span("mine"), gputrace.span("inner"):
            pass
    assert not trace.get_current_span().get_span_context().is_valid
    assert users.spans() == {}
    assert Once.asked == 1
    # The metrics count everything.
    shown(users.reader, "gputrace.calls")
    assert sum(point.value for point in shown(users.reader, "gputrace.calls")) == 2


@pytest.mark.parametrize("sampled", [True, False])
def test_a_parent_decides(users, sampled):
    users.set_tracer_provider()
    with trace.use_span(remote_parent(sampled=sampled)):
        for _ in range(3):
            with gputrace.span("work"):
                assert trace.get_current_span().get_span_context().trace_id == 0xABC
    found = users.spans()
    assert set(found) == ({"work"} if sampled else set())
    if sampled:
        assert found["work"].parent.span_id == 0xDEF


def test_parents_that_alternate_each_decide_for_themselves(users):
    users.set_tracer_provider()
    parents = [remote_parent(sampled=bool(number % 2)) for number in range(10)]
    for parent in parents:
        with trace.use_span(parent), gputrace.span("work"):
            pass
    assert gputrace.flush()
    assert len(users.exporter.get_finished_spans()) == 5


def test_a_ratio_is_kept_and_totals_do_not_depend_on_it(users, shown):
    users.set_tracer_provider(ParentBased(TraceIdRatioBased(0.25)))
    users.set_meter_provider()
    for _ in range(2000):
        with gputrace.span("root"), gputrace.span("inner"):
            pass
    assert gputrace.flush()
    finished = users.exporter.get_finished_spans()
    roots = sum(span.name == "root" for span in finished)
    # Eight standard deviations: never in a lifetime of runs.
    assert 345 < roots < 655
    assert len(finished) == 2 * roots
    assert sum(point.value for point in shown(users.reader, "gputrace.calls")) == 4000


def test_a_call_without_a_provider_makes_no_span_and_one_with_does(users):
    with gputrace.span("before"):
        assert not trace.get_current_span().get_span_context().is_valid
    users.set_tracer_provider()
    with gputrace.span("after"):
        pass
    assert set(users.spans()) == {"after"}


# --- what must not reach the user


@pytest.mark.usefixtures("contained")
@pytest.mark.parametrize("where", ["on_start", "on_end"])
def test_a_span_processor_that_fails_is_kept_from_the_user_and_counted(users, shown, caplog, where):
    class Broken:
        def __getattr__(self, name):
            def method(*_: object, **__: object) -> bool:
                if name == where:
                    raise RuntimeError("broken processor")
                return True

            return method

    provider = users.set_tracer_provider()
    users.set_meter_provider()
    provider.add_span_processor(Broken())
    with caplog.at_level(logging.ERROR, "gputrace"):
        for _ in range(3):
            with gputrace.span("work"):
                pass
        assert gputrace.flush()
    assert faults.count() == 3
    assert [record.name for record in caplog.records].count("gputrace") == 1
    shown(users.reader, "gputrace.sdk.faults")
    [point] = shown(users.reader, "gputrace.sdk.faults")
    assert point.value == 3
    assert sum(point.value for point in shown(users.reader, "gputrace.calls")) == 3


@pytest.mark.usefixtures("contained")
def test_a_span_exporter_that_fails_is_the_providers_affair(users, caplog):
    provider = users.set_tracer_provider()

    class Broken:
        def export(self, _):
            raise RuntimeError("broken exporter")

    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    provider.add_span_processor(SimpleSpanProcessor(Broken()))
    with gputrace.span("work"):
        pass
    assert set(users.spans()) == {"work"}
    assert faults.count() == 0
    assert "broken exporter" in caplog.text


def test_where_spans_are_off_nothing_is_attached(users):
    users.set_tracer_provider()
    with gputrace.span("first"):
        pass
    gputrace.shutdown()
    with gputrace.span("second"):
        assert not trace.get_current_span().get_span_context().is_valid
    assert not spans.enabled
    assert [span.name for span in users.exporter.get_finished_spans()] == ["first"]


def test_bentoml_2989_the_span_of_a_batch_links_to_all_members_and_is_under_none(users):
    """Also where the batcher's task was started by the first request."""
    users.set_tracer_provider()
    made = []

    async def batcher():
        async with gputrace.batch(made, operation="batch", padding=0.25):
            pass

    with gputrace.request("first"):
        made.append(gputrace.member())
        with gputrace.request("second"):
            made.append(gputrace.member())
        asyncio.run(batcher())
    found = users.spans()
    batch = found["batch"]
    assert batch.parent is None
    assert {link.context.span_id for link in batch.links} == {
        found[name].context.span_id for name in ("first", "second")
    }
    assert batch.attributes["gputrace.batch.size"] == 2
    assert batch.attributes["gputrace.batch.padding"] == 0.25


def test_the_span_of_an_interval_that_is_told_afterwards_lies_where_the_interval_did(users):
    users.set_tracer_provider()
    with gputrace.request("first", feature="search"):
        member = gputrace.member()
    end_ns = time.monotonic_ns()
    start_ns = end_ns - 5_000_000_000
    with gputrace.span("reads the log", hold="none"):
        gputrace.record_interval([member, None], "GPU-1", start_ns, end_ns, operation="step")
    lifecycle.shutdown(timeout=1)
    found = {span.name: span for span in users.exporter.get_finished_spans()}
    step = found["step"]
    assert step.parent is None
    assert [link.context.span_id for link in step.links] == [found["first"].context.span_id]
    assert (step.start_time, step.end_time - step.start_time) == (
        start_ns + spans.wall_offset_ns,
        5_000_000_000,
    )
    assert step.attributes["gputrace.batch.size"] == 2
    assert step.attributes["gputrace.call.device.time"] == pytest.approx(5)
    assert step.attributes["gputrace.time.source"] == "estimated"


def test_a_step_may_go_without_a_span(users):
    users.set_tracer_provider()
    work = [gputrace.Work(decode=1)]
    for span in (True, False):
        with gputrace.step([gputrace.member()], work, span=span), gputrace.span("inside"):
            pass
    users.spans()
    assert sorted(span.name for span in users.exporter.get_finished_spans()) == ["inside", "inside", "step"]


def test_the_span_of_a_batch_inside_a_tracked_call_is_its_child(users):
    users.set_tracer_provider()
    with gputrace.span("server"):
        made = gputrace.member()
        with gputrace.batch([made]):
            pass
    found = users.spans()
    assert found["batch"].parent.span_id == found["server"].context.span_id
