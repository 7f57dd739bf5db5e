"""What a reader must know about the numbers: the notes of a report, a sentence each."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.analysis.devices import bounds_differ
from gputrace.analysis.latency import FIELDS, Latencies, key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gputrace.analysis.devices import Device
    from gputrace.analysis.figures import Times, Totals
    from gputrace.analysis.readings import Readings, Series

_NAMED_FILES = 5
_ON_HOSTS = ' GPUTRACE_NODE_PRICE is of GPUs alone: a row with type = "cpu" in a price book prices hosts.'


def collect(
    readings: Readings,
    by: Sequence[str],
    devices: Sequence[Device],
    totals: Totals,
    latencies: Latencies | None,
) -> tuple[str, ...]:
    """Return the notes on the window, the devices, the money and the spans, in that order."""
    return (
        *_on_window(readings),
        *_on_types(devices, totals),
        *_on_money(readings.series, devices, totals),
        *_on_grouping(readings.series, by),
        *_on_spans(readings.series, by, totals, latencies),
        *_on_losses(readings.series),
    )


def on_skipped(skipped: Mapping[str, int]) -> Iterable[str]:
    """Yield which files hold lines that could not be used.

    Args:
        skipped: Number of such lines by name of the file.
    """
    for name, count in list(skipped.items())[:_NAMED_FILES]:
        yield f"{name}: {count:,} {_plural(count, 'line')} skipped, not OTLP/JSON or only half written."
    if len(skipped) > _NAMED_FILES:
        yield f"Lines were skipped in {len(skipped) - _NAMED_FILES} more files."


def _on_window(readings: Readings) -> Iterable[str]:
    if readings.clip_error_s:
        yield (
            "The window begins at the exports next to --since: the furthest is "
            f"{readings.clip_error_s:,.3f} s away from it."
        )


def _on_types(devices: Sequence[Device], totals: Totals) -> Iterable[str]:
    kinds = set(totals.by_type)
    if not devices:
        yield "No device was read, so there is no idle or untracked time, and shares are unknown."
    if kinds == {"cpu"}:
        yield "No GPU: the time of the host's processes stands in for it."
    if len(kinds) > 1:
        yield (
            f"Devices of {len(kinds)} types ({', '.join(sorted(kinds))}): their seconds are never added, "
            "each row counts one type."
        )
    for kind, times in totals.by_type.items():
        yield from _on_bounds(kind, times)
        yield from _on_overlap(kind, times)


def _on_bounds(kind: str, times: Times) -> Iterable[str]:
    if bounds_differ(times.untracked_s, times.untracked_upper_s):
        yield (
            f"Untracked time ({kind}) is at least {times.untracked_s:,.3f} s, which is what is shown, and at "
            f"most {times.untracked_upper_s:,.3f} s: a tracked call can hold a device without computing."
        )


def _on_overlap(kind: str, times: Times) -> Iterable[str]:
    if times.overlap_corrected_s:
        yield (
            f"{times.overlap_corrected_s:,.3f} s ({kind}) were charged by several processes at once and are "
            "taken off the rows, with the cost and energy of as much time: minute by minute, from all that "
            "was charged on devices of the same name, since no metric tells which of them a feature held."
        )
    if times.counted_twice_s:
        yield (
            f"{times.counted_twice_s:,.3f} s ({kind}) were charged by several processes at once and could "
            "not be taken off: twice in rows, once on devices."
        )


def _on_money(series: Iterable[Series], devices: Sequence[Device], totals: Totals) -> Iterable[str]:
    sums: dict[str, list[float]] = defaultdict(list)
    for one in series:
        if one.metric == catalogue.FEATURE_COST.name:
            sums[one.attributes.get(catalogue.CURRENCY, "?")].append(one.value)
    priced = [device for device in devices if device.costs]
    if not sums and not priced:
        hosts = devices and {device.type for device in devices} == {"cpu"}
        yield "No device has a price, so there is no cost." + (_ON_HOSTS if hosts else "")
    elif len(priced) < len(devices):
        unpriced = ", ".join(device.id for device in devices if not device.costs)
        yield f"No price for {unpriced}: its time is in no cost."
    if totals.currency is None and (sums or priced):
        parts = ", ".join(f"{math.fsum(values):,.4f} {currency}" for currency, values in sorted(sums.items()))
        yield f"Several currencies, never added: charged {parts}. Each further one has a row of its own."


def _on_grouping(series: Sequence[Series], by: Sequence[str]) -> Iterable[str]:
    counted = {attribute for one in series if one.metric in _BILLED for attribute in one.attributes}
    if "tenant" in by and catalogue.TENANT not in counted:
        yield (
            'No metric carries a tenant. Ask for it with configure(metric_attributes=("tenant",)) '
            "or GPUTRACE_METRIC_ATTRIBUTES=tenant."
        )
    if "feature" in by and any(
        one.metric == catalogue.CALLS.name
        and one.value
        and one.attributes.get(catalogue.FEATURE) == catalogue.SHARED
        for one in series
    ):
        yield (
            f"`{catalogue.SHARED}` counts batches and steps that served several features, once each. Their "
            "time stands with those features, which may so show 0 calls beside a charge."
        )


_BILLED = (catalogue.CALLS.name, catalogue.FEATURE_TIME.name)


def _on_spans(
    series: Iterable[Series], by: Sequence[str], totals: Totals, latencies: Latencies | None
) -> Iterable[str]:
    if latencies is None:
        return
    if latencies.spans < totals.calls:
        yield f"Percentiles come from {latencies.spans:,} of {totals.calls:,} calls; totals count every call."
    elif latencies.spans > totals.calls:
        yield f"{latencies.spans:,} spans for {totals.calls:,} counted calls: some belong to none of them."
    if latencies.broken:
        yield f"{latencies.broken:,} spans have no usable start and end and are in no percentile."
    counted = {key_of(one.attributes, by) for one in series if one.metric == catalogue.CALLS.name}
    strangers = len(latencies.groups.keys() - counted)
    if strangers:
        fields = ", ".join(FIELDS[field] for field in by)
        groups = _plural(strangers, "group")
        yield f"Spans of {strangers} {groups} ({fields}) have no counted call and no row."


def _on_losses(series: Sequence[Series]) -> Iterable[str]:
    for metric, text in (
        (catalogue.SDK_LOST, "records were lost by the SDK"),
        (catalogue.SDK_UNMEASURED, "calls touched a device and could not be timed"),
        (catalogue.SDK_FOLDED, "attribute values were folded into __other__"),
        (catalogue.SDK_UNTRUSTED, "baggage headers were not believed"),
        (catalogue.SDK_FAULTS, "faults of gputrace itself were kept out of the program"),
    ):
        found = [one for one in series if one.metric == metric.name and one.value]
        if found:
            reasons = sorted({one.attributes.get(catalogue.LOSS_REASON, "") for one in found} - {""})
            why = f" ({', '.join(reasons)})" if reasons else ""
            yield f"{round(math.fsum(one.value for one in found)):,} {text}{why}."
    fell = sum(one.fell for one in series)
    if fell:
        yield f"{fell} {_plural(fell, 'counter')} went backwards, which none may; the last value is used."


def _plural(count: int, word: str) -> str:
    return word if count == 1 else word + "s"
