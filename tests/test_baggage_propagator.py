"""The propagator: what instrumented clients and servers carry, through OpenTelemetry's own interface."""

from __future__ import annotations

import threading

import pytest
from opentelemetry import baggage as others, context as context_api, propagate, trace
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import gputrace
from gputrace import attribution, baggage, faults, settings
from gputrace.baggage_propagator import BaggagePropagator

KEY = "a-key-that-services-share"


@pytest.fixture(autouse=True)
def _signed(monkeypatch):
    monkeypatch.setattr(attribution, "mirrored", False)
    monkeypatch.setattr(baggage, "_policy", None)
    baggage.use(settings.read(environment={}, baggage_key=KEY))
    baggage.reset()
    faults.reset()


def injected(context=None, propagator=None, **fields):
    headers = {}
    with gputrace.attribute_to(**fields):
        (propagator or BaggagePropagator()).inject(headers, context)
    return headers


def billed_under(context):
    """What a server's work is billed to, whose instrumentation attached this context."""
    token = context_api.attach(context)
    try:
        return gputrace.current().feature
    finally:
        context_api.detach(token)


def extracted(headers, context=None):
    return BaggagePropagator().extract(headers, context_api.Context() if context is None else context)


def test_a_server_bills_what_its_client_was_billed_to():
    headers = injected(feature="support answer")
    assert list(headers) == ["baggage"]
    assert billed_under(extracted(headers)) == "support answer"
    assert gputrace.current().feature == "__none__"


def test_honeycomb_opentelemetry_dotnet_167_what_a_client_says_lands_nowhere():
    """Neither on spans, where a processor copies baggage, nor in the next service as if it were ours."""
    context = extracted({"baggage": "gputrace.feature=evil,gputrace.tenant=evil,user=7"})
    assert dict(others.get_all(context)) == {"user": "7"}
    assert billed_under(context) == "__none__"
    headers = {}
    BaggagePropagator().inject(headers, context)
    assert headers == {"baggage": "user=7"}


def test_a_forged_signature_is_counted():
    headers = {"baggage": injected(feature="search")["baggage"].replace("search", "evil")}
    assert billed_under(extracted(headers)) == "__none__"
    assert [count for _, count in baggage.unbelieved()] == [1]


def test_what_passes_on_the_header_does_not_spoil_it():
    """OpenTelemetry's own propagator, in a service between, decodes the entries and encodes them anew."""
    from opentelemetry.baggage.propagation import W3CBaggagePropagator

    between = W3CBaggagePropagator()
    headers = {}
    between.inject(headers, between.extract(injected(feature="a b/ü"), context_api.Context()))
    assert billed_under(extracted(headers)) == "a b/ü"


def test_a_space_is_told_from_a_plus():
    assert billed_under(extracted(injected(feature="c++ or c"))) == "c++ or c"


def test_others_baggage_goes_with_it():
    context = others.set_baggage("gputrace.feature", "evil", others.set_baggage("user", "a b"))
    header = injected(context, feature="search")["baggage"]
    assert header.startswith("user=a+b,gputrace.feature=search,gputrace.signature=1.")
    context = extracted({"baggage": header})
    assert dict(others.get_all(context)) == {"user": "a b"}
    assert billed_under(context) == "search"


def test_without_anything_to_say_there_is_no_header():
    assert injected() == {}


def test_a_context_that_was_handed_on_alone_is_enough():
    """As instrumentations of thread pools and queues do: the ContextVar is lost there."""
    found = []
    with gputrace.attribute_to(feature="search"):
        context = context_api.get_current()

    def elsewhere():
        headers = {}
        BaggagePropagator().inject(headers, context)
        found.append(billed_under(extracted(headers)))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == ["search"]


def test_it_ranks_below_every_explicit_value():
    headers = injected(feature="theirs", stage="theirs")
    with gputrace.attribute_to(feature="ours"):
        context = extracted(headers, context_api.get_current())
    token = context_api.attach(context)
    try:
        billed = gputrace.current().attribution
        assert (billed.feature, billed.stage) == ("ours", "theirs")
        with gputrace.attribute_to(stage="inner"):
            assert gputrace.current().attribution.stage == "inner"
    finally:
        context_api.detach(token)


def test_without_a_key_nothing_that_comes_in_is_believed():
    headers = injected(feature="search")
    baggage.use(settings.Settings())
    assert billed_under(extracted(headers)) == "__none__"


@pytest.mark.parametrize(
    "header", ["gputrace.signature=", "gputrace.signature", "gputrace.feature=%zz", "x" * 9000]
)
def test_a_malformed_header_raises_nothing(header):
    assert billed_under(extracted({"baggage": header})) == "__none__"


def test_beside_the_trace_context():
    """The composite is what `OTEL_PROPAGATORS=tracecontext,gputrace` makes."""
    both = CompositePropagator([TraceContextTextMapPropagator(), BaggagePropagator()])
    span = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=False))
    headers = injected(trace.set_span_in_context(span), both, feature="search")
    assert set(headers) == {"traceparent", "baggage"}
    context = both.extract(headers, context_api.Context())
    assert trace.get_current_span(context).get_span_context().trace_id == 1
    assert billed_under(context) == "search"


def test_it_is_found_by_its_name(run_python):
    result = run_python(
        "import gputrace\n"
        "from opentelemetry import propagate\n"
        "headers = {}\n"
        "with gputrace.attribute_to(feature='search'):\n"
        "    propagate.inject(headers)\n"
        "print(headers['baggage'])\n",
        OTEL_PROPAGATORS="tracecontext,gputrace",
    )
    assert result.stdout == "gputrace.feature=search\n"
    assert propagate.get_global_textmap() is not None
