"""``record_interval``: what a device did for the members of a batch, told by whoever knows it afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry import trace as trace_api

from gputrace import call as calls, catalogue, faults
from gputrace.attribution import tolerated_fields
from gputrace.batching import Batch, members_and_weights, site_of_batches
from gputrace.call_site import HOLD_CALL
from gputrace.devices.reported import LATEST_NS, SOURCES, Told
from gputrace.telemetry import spans

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gputrace.batching import Member
    from gputrace.call_site import Site
    from gputrace.requests import Request

_RECORDING = faults.contained("record an interval")

#: Reasons under which intervals count that are not charged, in all or in part.
FUTURE = "interval_future"
LATE = "interval_late"
REVERSED = "interval_reversed"

_WHY = {
    FUTURE: "it ends after now on time.monotonic_ns(), the clock that both ends must be of",
    LATE: f"it began over {LATEST_NS // 1_000_000_000} s ago; what a device did then is final",
    REVERSED: "its end lies before its start",
}


def record_interval(  # noqa: PLR0913 - as batch()
    members: Iterable[Member | Request | None],
    device: str,
    start_ns: int,
    end_ns: int,
    source: str = "estimated",
    *,
    weights: Iterable[float] | None = None,
    operation: str = "interval",
    model: str | None = None,
    variant: str | None = None,
    stage: str | None = None,
) -> None:
    """Charge an interval of a device that lies in the past to those whom it served.

    For model servers that cannot be instrumented, but tell afterwards from when
    to when they worked on which requests. It is split as :class:`gputrace.batch`
    is, and shared with what else held the device meanwhile. Time on such a
    device becomes final ten seconds late, so that intervals may come late and in
    any order; on a machine with GPUs the first of a device reaches back no
    further than to when it is told, so tell an empty one when the server
    starts. An interval that comes later than that, or lies in the future, is
    counted in ``gputrace.sdk.unmeasured`` and charged as far as it can be. A
    device on which this process times calls itself needs no reports: they are
    not charged, but counted there as well.

    Args:
        members: Whom it served: what :func:`gputrace.member` returned where each came in, or
            requests.
        device: ``hw.id`` of the device: the UUID that ``nvidia-smi -L`` prints.
        start_ns: When it began, ns of ``time.monotonic_ns()``.
        end_ns: When it ended, likewise.
        source: How the ends are known, which ``gputrace.time.source`` shows: ``estimated``, or ``kernel``
            where they are those of the kernels.
        weights: Share of each member, such as tokens; equal by default.
        operation: Name of the work.
        model: Model that did the work.
        variant: Variant of the model.
        stage: Stage of a cascade or pipeline.

    Raises:
        ValueError: ``device`` or ``source`` cannot be used; names it.
    """
    given: object = device
    if not isinstance(given, str) or not given:
        raise ValueError(
            f"gputrace.record_interval(device={device!r}): it must be the id of a device, as nvidia-smi -L "
            "prints it: 'GPU-…' or 'MIG-…'"
        )
    if source not in SOURCES:
        raise ValueError(
            f"gputrace.record_interval(source={source!r}): it must be one of {', '.join(SOURCES)}"
        )
    with _RECORDING:
        fields = tolerated_fields({"model": model, "variant": variant, "stage": stage}, "record_interval")
        site = site_of_batches(operation, fields, HOLD_CALL, None, None, None)
        told = Told(device, estimated=source == "estimated")
        *marks, told.unmeasured = _within_reach(int(start_ns), int(end_ns), calls.clock())
        if told.unmeasured is not None:
            faults.log_once(
                f"interval:{told.unmeasured}",
                "gputrace.record_interval: an interval was not charged in full: %s; later ones are counted",
                _WHY[told.unmeasured],
            )
        _hand_over(site, Batch(*members_and_weights(members, weights)), told, marks)


def _hand_over(site: Site, batch: Batch, told: Told, marks: list[int]) -> None:
    """Queue a batch that is over, and that nobody saw begin."""
    if not calls.settling:
        calls.ensure_settled()
    call = calls.Call(site, None)
    call.batch = batch
    call.attribution = batch.own_attribution(call.attribution)
    call.timer = told
    call.marks.extend(marks)
    call.closed = True
    call.pending = False
    if trace_api._TRACER_PROVIDER is not None:  # noqa: SLF001 - get_tracer_provider() builds a proxy each time
        spans.report(call)
    if call.span is not None:
        call.span.set_attribute(catalogue.BATCH_SIZE, batch.size)
    if calls.entered is not None:
        calls.entered()
    calls.queue.append(call)


def _within_reach(start_ns: int, end_ns: int, now_ns: int) -> tuple[int, int, str | None]:
    """Return the part of an interval that can be charged, and why that is not all of it."""
    if end_ns > now_ns:
        return now_ns, now_ns, FUTURE
    if end_ns < start_ns:
        return now_ns, now_ns, REVERSED
    earliest_ns = now_ns - LATEST_NS
    if start_ns >= earliest_ns:
        return start_ns, end_ns, None
    return earliest_ns, max(earliest_ns, end_ns), LATE
