"""``batch`` and ``member``: one interval on a device that serves many requests, split among them."""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from opentelemetry import trace as trace_api

from gputrace import attribution, call as calls, catalogue, faults, staged
from gputrace.attribution import Attribution, tolerated_fields
from gputrace.call_blocks import OpenCalls
from gputrace.call_site import HOLD_STEPS, Site, checked_options
from gputrace.devices.energy import apportion
from gputrace.requests import Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from opentelemetry.trace import SpanContext

    from gputrace.call import Call
    from gputrace.staged import StagedWork, Tally

_READING = faults.contained("read the members of a batch")


class Member:
    """What a queue item carries to the batch that will serve it: who is billed, and what it belongs to.

    Attributes:
        attribution: Who is billed.
        request: The request that it came from, None outside of any.
        span_context: Links the batch to it.
        variant: Variant of the model that serves it, where not all of the batch have the same.
        tally: Sums up the stage of a cascade that it came from, None outside of any.
        awaited: The request waits for its first batch.
        tally_awaited: The cascade does.
    """

    __slots__ = ("attribution", "awaited", "request", "span_context", "tally", "tally_awaited", "variant")

    def __init__(
        self,
        billed: Attribution,
        request: Request | None,
        span_context: SpanContext | None,
    ) -> None:
        self.attribution = billed
        self.request = request
        self.span_context = span_context
        self.variant: str | None = None
        self.tally: Tally | None = None
        self.awaited = False
        self.tally_awaited = False

    def forget(self) -> None:
        """Let its request and its cascade wait no more: its first batch is settled, or none will serve it."""
        if self.awaited and self.request is not None:
            self.awaited = False
            self.request.expected.pop()
        if self.tally_awaited and self.tally is not None:
            self.tally_awaited = False
            self.tally.work.awaited.pop()


def member(*, variant: str | None = None) -> Member:
    """Return what the current work puts into a queue, so that the batch which serves it bills it.

    A request tells its totals only once the batches that it waits for are settled.

    Args:
        variant: Variant of the model that serves it, such as an adapter (LoRA), where one batch
            serves several: its share is of this variant, whatever the batch says of itself.
    """
    scope = attribution.scope_in_force()
    call = attribution.enclosing_call(scope)
    root = None if call is None else call.root or call
    request = root.request if root is not None and root.site.is_request else None
    span_context = trace_api.get_current_span().get_span_context()
    made = Member(
        attribution.UNNAMED if scope is None else scope.attribution,
        request,
        span_context if span_context.is_valid else None,
    )
    if variant is not None:
        made.variant = tolerated_fields({"variant": variant}, "member").get("variant")
    if request is not None:
        made.awaited = True
        request.expected.append(None)
    made.tally = staged.tally_of(call)
    if made.tally is not None:
        made.tally_awaited = True
        made.tally.work.awaited.append(None)
    return made


_NOBODY = Member(attribution.UNNAMED, None, None)


@functools.lru_cache(maxsize=4_096)
def _billed(
    feature: str | None, tenant: str | None, model: str | None, variant: str | None, stage: str | None
) -> Attribution:
    # The same object for the same fields: series are looked up by it.
    return Attribution(feature=feature, tenant=tenant, model=model, variant=variant, stage=stage)


class Batch:
    """The members of a batch that runs, and how its charges are split among them.

    Attributes:
        members: Each once; its weight is the sum of those under which it was given.
        weights: By member, whole numbers; not negative, and not all zero.
        size: How many were given.
        counted: Its calls are counted, and those of the requests that it serves.
        counts_members: Its members are.
        charged: What was split so far, in 1/``SCALE`` ns by device.
        following: Calls under it, its own included, that the settler follows.
    """

    counted = True
    counts_members = True

    def __init__(self, members: Sequence[Member], weights: Sequence[Fraction]) -> None:
        summed: dict[Member, Fraction] = {}
        for one, weight in zip(members, weights, strict=True):
            summed[one] = summed.get(one, Fraction(0)) + weight
        # Whole numbers: splitting is done for every charge.
        scale = math.lcm(*(weight.denominator for weight in summed.values()))
        self._begin(len(members), tuple(summed), [int(weight * scale) for weight in summed.values()])

    def _begin(self, size: int, members: tuple[Member, ...], weights: list[int]) -> None:
        self.size = size
        self.members = members
        self.weights = weights
        self.charged: dict[object, int] = {}
        self._given: dict[object, list[int]] = {}
        self._owing: tuple[Attribution | None, list[Attribution]] = (None, [])
        self.following = 0
        for request in self.requests():
            request.expected.append(None)
        for work in self.staged_work():
            work.awaited.append(None)

    def requests(self) -> list[Request]:
        """Return the requests that it serves, each once."""
        return list(dict.fromkeys([one.request for one in self.members if one.request is not None]))

    def staged_work(self) -> list[StagedWork]:
        """Return the cascades and audits that it serves, each once."""
        if not staged.in_use:
            return []
        return list(dict.fromkeys([one.tally.work for one in self.members if one.tally is not None]))

    def split(self, device: object, amount: int) -> list[tuple[Member, int]]:
        """Split a charge; what each member was given grows, and stays within one unit of its share.

        Args:
            device: The device that it was charged on.
            amount: 1/``SCALE`` ns.
        """
        whole = sum(self.weights)
        charged = self.charged[device] = self.charged.get(device, 0) + amount
        given = self._given.get(device) or [0] * len(self.members)
        due = [charged * weight for weight in self.weights]
        parts = [max(0, one // whole - before) for one, before in zip(due, given, strict=True)]
        rest = amount - sum(parts)
        # What rounding left goes to those that are furthest behind, in turn.
        ahead = [(before + part) * whole - one for one, before, part in zip(due, given, parts, strict=True)]
        for at in sorted(range(len(parts)), key=ahead.__getitem__)[:rest]:
            parts[at] += 1
        self._given[device] = [before + part for before, part in zip(given, parts, strict=True)]
        return list(zip(self.members, parts, strict=True))

    def charged_by_member(self) -> list[int]:
        """Return what each member was given so far on all devices together, in 1/``SCALE`` ns."""
        return [sum(of_one) for of_one in zip(*self._given.values(), strict=True)] or [0] * len(self.members)

    def shares_ns(self, charged_ns: int) -> dict[Member, int]:
        """Split whole nanoseconds by largest remainder: the shares sum to them."""
        return apportion(charged_ns, dict(zip(self.members, self.weights, strict=True)))

    def billed(self, call: Call) -> list[Attribution]:
        """Return whom each member's share of a call under the batch is billed to."""
        of_call, known = self._owing
        # Nearly always the batch's own call, each time that it is charged.
        if of_call is not call.attribution:
            of_call = call.attribution
            known = [_owing(one, of_call) for one in self.members]
            self._owing = (of_call, known)
        return known

    def own_attribution(self, of_call: Attribution) -> Attribution:
        """Return under which feature the batch itself is counted: that of its members, if they have one."""
        features = {one.attribution.feature for one in self.members}
        tenants = {one.attribution.tenant for one in self.members}
        return _billed(
            features.pop() if len(features) == 1 else catalogue.SHARED,
            tenants.pop() if len(tenants) == 1 else None,
            of_call.model,
            of_call.variant,
            of_call.stage,
        )


def _owing(one: Member, of_call: Attribution) -> Attribution:
    stage = None if one.tally is None else one.tally.work.billed_stage
    return _billed(
        one.attribution.feature,
        one.attribution.tenant,
        of_call.model,
        one.variant or of_call.variant,
        stage or of_call.stage,
    )


class BatchSite(Site):
    """The site of batches."""

    __slots__ = ()

    is_batch = True


class SpanlessBatchSite(BatchSite):
    """The site of batches of which there are too many for spans."""

    __slots__ = ()

    has_spans = False


_SITES_LIMIT = 256
_sites: dict[tuple[Any, ...], BatchSite] = {}


def site_of_batches(
    operation: str, fields: dict[str, str], hold: str, *options: Any, span: bool = True
) -> BatchSite:
    """Return the site of such batches, kept where it is plain: the settler remembers their series by it."""
    devices, streams, attributes = options
    key = (operation, *fields.items(), hold, span)
    site = _sites.get(key) if options == (None, None, None) else None
    if site is None:
        checked = checked_options("batch", hold, devices, streams, 1, attributes)
        site = (BatchSite if span else SpanlessBatchSite)(operation, fields, **checked)
        if options == (None, None, None):
            if len(_sites) >= _SITES_LIMIT:
                _sites.clear()
            _sites[key] = site
    return site


class BatchBlock:
    """A block that serves many requests at once, with ``with`` or ``async with``."""

    __slots__ = ("_calls", "_site")

    _calls: OpenCalls
    _site: BatchSite

    def __enter__(self) -> Call:
        raise NotImplementedError

    def _entered(self, served: Batch, size: int) -> Call:
        call = calls.enter(self._site, batch=served)
        if call.span is not None:
            call.span.set_attribute(catalogue.BATCH_SIZE, size)
        self._calls.entered(call)
        return call

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        call = self._calls.left()
        if call is not None:
            calls.leave(call, error, block=True)

    async def __aenter__(self) -> Call:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


class batch(BatchBlock):  # noqa: N801 - used like a function
    """Track a block that serves many requests at once, with ``with`` or ``async with``.

    One owner of the device, whatever its size. What it is charged, and what every
    call under it is, is split among the members by weight, on each device;
    feature, tenant and request come from the members. The span of the batch
    links to all of them, and has none for a parent.

    Args:
        members: What :func:`member` returned for each; a request stands for itself,
            None for nobody.
        weights: Share of each, such as tokens; equal by default.
        operation: Name of the work.
        model: Model that does the work.
        variant: Variant of the model.
        stage: Stage of a cascade or pipeline.
        hold: ``steps``, ``call`` or ``none``.
        devices: Devices that it uses; the current one by default.
        streams: Side streams that are timed as well as the current one.
        padding: Share of the batch that is padding, 0 to 1; on its span.
        attributes: More attributes for the span.

    Raises:
        ValueError: ``hold``, ``devices`` or ``streams`` cannot be used; names it. Members and
            weights come with requests: wrong ones are reported once, and count as nobody and equal.
    """

    __slots__ = ("_given", "_padding")

    def __init__(  # noqa: PLR0913 - as span()
        self,
        members: Iterable[Member | Request | None],
        weights: Iterable[float] | None = None,
        *,
        operation: str = "batch",
        model: str | None = None,
        variant: str | None = None,
        stage: str | None = None,
        hold: str = HOLD_STEPS,
        devices: Any = None,
        streams: Sequence[Any] | None = None,
        padding: float | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        fields = tolerated_fields({"model": model, "variant": variant, "stage": stage}, "batch")
        self._site = site_of_batches(operation, fields, hold, devices, streams, attributes)
        self._given = members_and_weights(members, weights)
        self._padding = padding
        self._calls = OpenCalls()

    def __enter__(self) -> Call:
        call = self._entered(Batch(*self._given), len(self._given[0]))
        if self._padding is not None and call.span is not None:
            call.span.set_attribute(catalogue.BATCH_PADDING, self._padding)
        return call


def members_and_weights(
    members: Iterable[Member | Request | None], weights: Iterable[float] | None
) -> tuple[list[Member], list[Fraction]]:
    """Return members and weights as they can be used; whatever is wrong is said once."""
    read = as_members(members) or [_NOBODY]
    equal = [Fraction(1)] * len(read)
    if weights is None:
        return read, equal
    with _READING:
        try:
            given = [Fraction(weight) for weight in weights]
        except (TypeError, ValueError, OverflowError):
            given = []
        if len(given) == len(read) and min(given) >= 0 and any(given):
            return read, given
        faults.log_once(
            "batch-weights",
            "gputrace.batch: weights must be as many as the members (%d), numbers, not negative and not all "
            "zero; the members of this batch count alike",
            len(read),
        )
    return read, equal


_ITERATING = faults.tolerated("the members given to a batch or step")


def as_members(given: Iterable[Member | Request | None]) -> list[Member]:
    """Return what a batch was given as members; nobody where that cannot be read, which is said once."""
    with _ITERATING:
        # On the thread that launches the work of the device: nearly all are members.
        return [one if one.__class__ is Member else as_member(one) for one in given]
    return [_NOBODY]


def as_member(given: Member | Request | None) -> Member:
    """Return what a batch was given as a member; what is none counts as nobody, and is said once."""
    if isinstance(given, Member):
        return given
    if isinstance(given, Request):
        call = given.call
        span_context = None if call.span is None else call.span.get_span_context()
        made = Member(call.attribution, given, span_context)
        made.tally = staged.tally_of(call)
        return made
    if given is not None:
        faults.log_once(
            "batch-member",
            "gputrace.batch: a %s is no member; put gputrace.member() into the queue",
            type(given).__name__,
        )
    return _NOBODY
