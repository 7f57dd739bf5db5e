"""One request to a cascade: its stages, what was decided after each, and the audit of what was kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputrace import (
    call as calls,
    call_closing,
    cascades_counting,
    catalogue,
    clocks,
    faults,
    ledger,
    staged,
)
from gputrace.attribution import enclosing_call, scope_in_force, tolerated_fields
from gputrace.call_blocks import OpenCalls
from gputrace.call_site import HOLD_CALL
from gputrace.cascades_audits import NO_CALLBACK, NO_DRAW, QUEUE
from gputrace.cascades_policy import as_number
from gputrace.cascades_shadow import MOST_WAITING, Audit, in_force
from gputrace.requests import Request, request
from gputrace.staged import StagedWork, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from gputrace.call import Call
    from gputrace.cascades import Cascade
    from gputrace.cascades_policy import Policy, Step

_DECIDING = faults.contained("record the decision of a cascade")
_LAUNCHING = faults.contained("begin an audit")


class CascadeRequest(Request, StagedWork):
    """One request that is open or not settled yet.

    Attributes:
        cascade: What it is a request to.
        policy: The rule in force when it was decided; None before.
        steps: What was decided, after each stage.
        draw: Whether the kept answer is audited.
        stages: What each stage came to, in the order in which they ran.
        audit: The audit; None where there is none.
        decided_ns: When it was decided, Unix time in ns.
    """

    def __init__(
        self,
        cascade: Cascade,
        outer: Tally | None,
        route: str | None,
        input_size: float | None,
        callback: Callable[[], Any] | None,
    ) -> None:
        Request.__init__(self, route)
        StagedWork.__init__(self, outer)
        self.cascade = cascade
        self.input_size = input_size
        self.policy: Policy | None = None
        self.steps: list[Step] = []
        self.draw = NO_DRAW
        self.stages: list[Tally] = []
        self.audit: Audit | None = None
        self.decided_ns = 0
        self.is_settled = self.is_told = False
        self.audit_is_settled = False
        self._callback = callback
        # That of its beginning: what is settled while the program ends counts as well.
        self._counting = cascades_counting.in_force()

    @property
    def id(self) -> str:
        """Identity of the request, for scores and outcomes that come later."""
        identity = self.call.id
        if self._counting is not None:
            self._counting.asked(identity, self)
        return identity

    @property
    def charged_ns(self) -> int:
        """What its calls were charged so far, ns, without an audit; grows until it is settled."""
        return sum(tally.charged for tally in (self.rest, *self.stages)) // ledger.SCALE

    @property
    def escalated(self) -> bool:
        """Whether any stage after the first is to answer, as decided so far."""
        return bool(self.steps) and self.steps[0].escalated

    @property
    def audited(self) -> bool:
        """Whether the answer was kept, and will be audited all the same."""
        return self.audit is not None

    def _site(self, operation: str) -> staged.StagedSite:
        return self.cascade.request_site(operation, is_request=self.call.site.is_request)

    def stage(  # noqa: PLR0913 - as span()
        self,
        name: str,
        *,
        model: str | None = None,
        variant: str | None = None,
        input_size: float | None = None,
        hold: str | None = None,
        devices: Any = None,
        streams: Sequence[Any] | None = None,
    ) -> StageBlock:
        """Track a stage, with ``with`` or ``async with``: all that runs in the block is its work.

        Args:
            name: One of the stages of the cascade.
            model: Model that does the work.
            variant: Variant of the model.
            input_size: How large its input is; that of the request by default.
            hold: ``call`` holds the device to the end of the block whatever it awaits, ``steps``
                as ``span`` does, ``none`` not at all: for a block that only waits, for another
                process or for a batch. By default that of the cascade. An audit holds as the
                cascade says; so say it there, and the two sides are measured alike.
            devices: Devices that the block uses; the current one by default.
            streams: Side streams that are timed as well as the current one.

        Raises:
            ValueError: ``hold``, ``devices`` or ``streams`` cannot be used; names it.
        """
        cascade = self.cascade
        hold = hold or cascade.hold
        site = cascade.stage_site(name, model, variant, hold or calls.HOLD_STEPS, devices, streams)
        if hold is not None:
            return StageBlock(self, site, site, input_size)
        # As an audit does: what the block awaits is the stage's work, unless somebody says otherwise.
        awaiting = cascade.stage_site(name, model, variant, HOLD_CALL, devices, streams)
        return StageBlock(self, site, awaiting, input_size)

    def escalate(self, confidence: Any, *, audit: Callable[[], Any] | None = None) -> bool:
        """Decide whether the next stage is to answer, and record why.

        A kept answer may be drawn for an audit, which begins when the request has
        ended; nothing here waits for it.

        Args:
            confidence: How sure the stage is that has just answered.
            audit: What an audit runs: the heavy stage, without arguments. A coroutine is
                awaited in the loop of the request, anything else runs in a thread of its own.

        Returns:
            True where the confidence is below the threshold: a tie is kept.
        """
        with _DECIDING:
            return self._decide(confidence, audit or self._callback)
        return True

    def _decide(self, confidence: Any, callback: Callable[[], Any] | None) -> bool:
        cascade, steps = self.cascade, self.steps
        if len(steps) >= len(cascade.stages) - 1 or (steps and not steps[-1].escalated):
            faults.log_once(
                f"cascade:{cascade.name}:steps",
                "gputrace: escalate() was called more often than cascade %r has stages to go on to; the "
                "request is not escalated further",
                cascade.name,
            )
            return False
        if self.policy is None:
            self.policy = cascade.policy
            self.decided_ns = clocks.wall_ns()
            if self._counting is not None and not self.is_told:
                self._counting.deciding(self)
        step = self.policy.judge(confidence, len(steps))
        steps.append(step)
        if len(steps) == 1:
            if not step.escalated:
                self._draw(confidence, callback)
            self._describe_decision()
        return step.escalated

    def _draw(self, confidence: Any, callback: Callable[[], Any] | None) -> None:
        counting = self._counting
        if counting is None or counting is not cascades_counting.in_force():
            # Nothing would tell what an audit found.
            return
        impossible = None
        if callback is None:
            impossible = NO_CALLBACK
        elif counting.waiting() >= MOST_WAITING:
            impossible = QUEUE
        cascade = self.cascade
        self.draw = cascade.audits.draw(
            confidence, impossible=impossible, open_requests=len(cascade.open_requests)
        )
        if self.draw.runs and callback is not None:
            self.audit = Audit(self, callback)
            counting.begun(self)
        elif self.draw.reason is NO_CALLBACK:
            faults.log_once(
                f"cascade:{cascade.name}:no-callback",
                "gputrace: cascade %r has an audit_rate, and nothing to run: give escalate(confidence, "
                "audit=…) a function that asks the heavy stage",
                cascade.name,
            )

    def _describe_decision(self) -> None:
        span = self.call.span
        if span is not None:
            decision = "escalated" if self.escalated else "audited" if self.audited else "kept"
            span.set_attributes(
                {
                    catalogue.ESCALATION_CASCADE: self.cascade.name,
                    catalogue.ESCALATION_DECISION: decision,
                }
            )

    def left(self) -> None:
        """Take note that its block was left: an audit may begin."""
        self.cascade.open_requests.discard(self)
        self._callback = None
        audit = self.audit
        if audit is None:
            return
        if self._counting is not cascades_counting.in_force():
            # A fork or a shutdown came in between: it is the parent's, or nobody would know.
            audit.cancelled = True
        else:
            with _LAUNCHING:
                try:
                    in_force().submit(audit)
                except RuntimeError:
                    # At exit no thread can be started.
                    audit.cancelled = True

    def tallies(self) -> list[Tally]:
        """Return what sums up all inside it."""
        return [self.rest, *self.stages]

    def told(self) -> None:
        """Hand on what it came to, if nothing more is awaited."""
        self.is_settled = True
        self._complete()

    def audit_told(self) -> None:
        """Take note that its audit is settled."""
        self.audit_is_settled = True
        self._complete()

    def _complete(self) -> None:
        awaited = self.audit is not None and not self.audit_is_settled
        if self.is_settled and not awaited and self._counting is not None:
            self._counting.settled(self)


class StageBlock:
    """The block of one stage."""

    __slots__ = ("_awaiting", "_calls", "_input_size", "_request", "_site")

    def __init__(
        self,
        request: CascadeRequest,
        site: staged.StagedSite,
        awaiting: staged.StagedSite,
        input_size: float | None,
    ) -> None:
        self._request = request
        self._site = site
        self._awaiting = awaiting
        self._input_size = input_size
        self._calls = OpenCalls()

    def __enter__(self) -> Call:
        return self._entered(self._site)

    def _entered(self, site: staged.StagedSite) -> Call:
        work = self._request
        size = as_number(self._input_size)
        tally = Tally(site.overrides["stage"], work, work.input_size if size is None else size)
        call = tally.call = calls.enter(site, staged=tally)
        work.stages.append(tally)
        self._calls.entered(call)
        return call

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        call = self._calls.left()
        if call is None:
            return
        call.staged.completed = error is None
        calls.leave(call, error, block=True)

    async def __aenter__(self) -> Call:
        return self._entered(self._awaiting)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


class CascadeBlock(request):
    """The block of one request; what ``Cascade.request`` returns."""

    __slots__ = ("_callback", "_cascade", "_input_size")

    def __init__(  # noqa: PLR0913 - what can be said about a request
        self,
        cascade: Cascade,
        operation: str | None,
        *,
        route: str | None,
        feature: str | None,
        tenant: str | None,
        input_size: float | None,
        audit: Callable[[], Any] | None,
        attributes: Mapping[str, Any] | None,
    ) -> None:
        named = tolerated_fields({"operation": operation}, "Cascade.request").get("operation", cascade.name)
        super().__init__(named, route=route, feature=feature, tenant=tenant, attributes=attributes)
        self._cascade = cascade
        self._input_size = as_number(input_size)
        self._callback = audit

    def __enter__(self) -> CascadeRequest:
        cascade = self._cascade
        outer = enclosing_call(scope_in_force())
        if outer is not None and outer.closed:
            outer = None
        root = None if outer is None else outer.root or outer
        inside = root is not None and root.site.is_request
        opened = CascadeRequest(
            cascade, staged.tally_of(outer), self._route, self._input_size, self._callback
        )
        site = cascade.request_site(self._operation, is_request=not inside)
        call = opened.call = calls.enter(site, request=None if inside else opened, staged=opened)
        if self._fields:
            call.attribution = call.attribution.merged(self._fields)
        if self._attributes and call.span is not None:
            call.span.set_attributes(self._attributes)
        cascade.open_requests.add(opened)
        cascade.audits.begun()
        self._calls.entered(call)
        return opened

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        call = self._calls.left()
        if call is None:
            return
        try:
            if call.closed:
                call_closing.retire(call)
            else:
                calls.leave(call, error, block=True)
        finally:
            call.staged.left()

    async def __aenter__(self) -> CascadeRequest:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)
