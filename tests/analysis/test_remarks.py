from __future__ import annotations

import pytest

from gputrace import catalogue
from gputrace.analysis.remarks import on_skipped


@pytest.fixture
def notes(program, report):
    """The notes on one GPU that one feature used, after `change` had its way with the program."""

    def of(change=lambda _: None, **arguments):
        one = program(sampling=arguments.pop("sampling", 1.0))
        one.device(charged=1.0, idle=1.0)
        one.call(1.0, feature="a")
        change(one)
        one.export()
        return "\n".join(report(**arguments).notes)

    return of


def test_a_gpu_without_a_price_needs_one_note(notes):
    assert notes() == "No device has a price, so there is no cost."


def test_host_time_is_called_that(program, report):
    one = program()
    one.device({catalogue.HW_ID: "host/i1", catalogue.HW_TYPE: "cpu"}, charged=1.0)
    one.call(1.0, feature="a", hw="cpu")
    one.export()
    assert "No GPU: the time of the host's processes stands in for it." in report().notes
    assert any("GPUTRACE_NODE_PRICE is of GPUs alone" in note for note in report().notes)


def test_one_device_of_two_without_a_price_is_named(notes):
    def price(one):
        one.device({catalogue.HW_ID: "GPU-2", catalogue.HW_TYPE: "gpu"}, idle=2.0)
        bill = {catalogue.HW_ID: "GPU-1", catalogue.PUBLISHER: "p1", catalogue.CURRENCY: "EUR"}
        one.add(catalogue.DEVICE_COST, 1.0, {**bill, catalogue.DEVICE_STATE: "charged"})

    assert notes(price) == "No price for GPU-2: its time is in no cost."


def test_several_currencies_are_summed_apart(notes):
    def price(one):
        for currency, cost in (("USD", 3.0), ("EUR", 1.0)):
            one.add(catalogue.FEATURE_COST, cost, {catalogue.FEATURE: "a", catalogue.CURRENCY: currency})

    assert "never added: charged 1.0000 EUR, 3.0000 USD." in notes(price)


@pytest.mark.parametrize(
    ("feature", "by", "said"),
    [(catalogue.SHARED, "feature", True), (catalogue.SHARED, "model", False), ("b", "feature", False)],
)
def test_the_row_of_batches_that_serve_several_is_explained_where_there_is_one(notes, feature, by, said):
    text = notes(lambda one: one.call(0.0, feature=feature), by=(by,))
    assert ("`__shared__` counts batches and steps that served several features" in text) is said


def test_overlap_is_named(notes):
    def overlap(one):
        device = {catalogue.HW_ID: "GPU-1", catalogue.PUBLISHER: "p1", catalogue.HW_TYPE: "gpu"}
        one.add(catalogue.DEVICE_OVERLAP_TIME, 0.5, device)

    assert "0.500 s (gpu) were charged by several processes at once and are taken off" in notes(overlap)


def test_bounds_of_untracked_time_that_differ_are_both_given(notes, report):
    def bound(upper):
        device = {catalogue.HW_ID: "GPU-1", catalogue.PUBLISHER: "p1", catalogue.HW_TYPE: "gpu"}

        def change(one):
            one.device(untracked=2.0)
            one.add(catalogue.DEVICE_UNTRACKED_UPPER_TIME, upper, device)

        return change

    assert "is at least 2.000 s, which is what is shown, and at most 5.000 s" in notes(bound(5.0))
    data = report().to_json()
    assert (data["totals"]["untracked_s"], data["totals"]["untracked_upper_s"]) == (2.0, 5.0)
    assert data["devices"][0]["untracked_upper_s"] == 5.0


def test_bounds_that_agree_need_no_note(notes):
    assert "at most" not in notes(lambda one: one.device(untracked=2.0))


def test_a_tenant_on_no_metric_says_how_to_get_it(notes):
    assert "GPUTRACE_METRIC_ATTRIBUTES=tenant" in notes(by=("feature", "tenant"))


def test_a_tenant_on_metrics_needs_no_note(notes):
    assert "tenant" not in notes(lambda one: one.call(0.0, tenant="acme"), by=("feature", "tenant"))


def test_sampled_percentiles_say_of_how_many_calls(notes):
    assert "Percentiles come from 0 of 1 calls" in notes(sampling=0.0)


def test_without_percentiles_spans_need_no_note(notes):
    assert "Percentiles" not in notes(sampling=0.0, percentiles=False)


def test_spans_of_calls_that_no_metric_counts_are_named(notes, lines, write):
    write(lines.spans((catalogue.SCOPE_NAME, [lines.span({catalogue.FEATURE: "b"})] * 2)), name="more.jsonl")
    text = notes()
    assert "3 spans for 1 counted calls" in text
    assert "Spans of 1 group (gputrace.feature) have no counted call" in text


def test_broken_spans_are_counted(notes, lines, write):
    write(lines.spans((catalogue.SCOPE_NAME, [lines.span({}, wall_s=-1.0)])), name="more.jsonl")
    assert "1 spans have no usable start and end" in notes()


@pytest.mark.parametrize(
    ("metric", "text"),
    [
        (catalogue.SDK_LOST, "3 records were lost by the SDK (queue_full, shutdown)."),
        (catalogue.SDK_UNMEASURED, "3 calls touched a device and could not be timed (queue_full, shutdown)."),
        (catalogue.SDK_FOLDED, "3 attribute values were folded into __other__ (queue_full, shutdown)."),
        (catalogue.SDK_UNTRUSTED, "3 baggage headers were not believed (queue_full, shutdown)."),
        (
            catalogue.SDK_FAULTS,
            "3 faults of gputrace itself were kept out of the program (queue_full, shutdown).",
        ),
    ],
)
def test_what_the_sdk_lost_is_in_the_notes(notes, metric, text):
    def lose(one):
        one.add(metric, 1, {catalogue.LOSS_REASON: "shutdown"})
        one.add(metric, 2, {catalogue.LOSS_REASON: "queue_full"})

    assert text in notes(lose)


def test_a_counter_that_went_backwards_is_in_the_notes(write, lines, report):
    write(lines.export(1.0, charged=2.0), lines.export(2.0, charged=1.0))
    assert "2 counters went backwards, which none may; the last value is used." in report().notes


def test_no_device_at_all(program, report):
    one = program()
    one.call(1.0, feature="a")
    one.export()
    assert any("No device was read" in note for note in report().notes)


def test_the_first_files_with_skipped_lines_are_named_and_the_rest_counted():
    notes = list(on_skipped({f"{number}.jsonl": 1 for number in range(7)}))
    assert len(notes) == 6
    assert notes[-1] == "Lines were skipped in 2 more files."
