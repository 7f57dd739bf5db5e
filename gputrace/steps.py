"""``step``: one step of a model server, split among its members by what each of them does in it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from gputrace import catalogue, faults
from gputrace.attribution import Attribution, tolerated_fields
from gputrace.batching import Batch, BatchBlock, Member, as_members, site_of_batches
from gputrace.call_blocks import OpenCalls
from gputrace.call_site import HOLD_CALL
from gputrace.steps_weights import NO_PRICES
from gputrace.steps_work import WorkError, checked, covariates, summed, whole_weights

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gputrace.call import Call
    from gputrace.requests import Request
    from gputrace.steps_weights import Prices
    from gputrace.steps_work import Vector, Work

_READING = faults.tolerated("the iterable of work given to gputrace.step")

#: Who is billed for a step that serves nobody.
_OVERHEAD = Member(Attribution(feature=catalogue.OVERHEAD), None, None)


class StepBatch(Batch):
    """The members of a step that runs.

    Its thread, which launches the work of the device, only keeps what was given:
    the settler weighs it, before it splits anything.

    Attributes:
        served: The members as they were given, one that was given twice twice.
        server: What is known of its model and device; None until the settler weighs it, and until
            then all weights are equal.
        prices: What its tokens cost.
        taken: What the work of each of ``members`` takes, in the unit of the prices.
        prompts: What of that its prompt tokens take.
        vectors: What of the work of each, in the order of ``served``, takes time; none where the
            work that was given cannot be used.
        total: Their sum.
        work: The work of each; none likewise.
    """

    def __init__(self, members: Sequence[Member], work: Sequence[Work] | None, *, counted: bool) -> None:
        self.served = members
        self.counted = counted
        self.counts_members = counted and work is not None
        self.server: Any = None
        self.prices = NO_PRICES
        self.taken: list[float] = []
        self.prompts: list[float] = []
        self.vectors: list[Vector] = []
        self.total = summed(())
        self.work: Sequence[Work] = ()
        self._given_work = work
        unique = tuple(dict.fromkeys(members))
        self._begin(len(members), unique, [1] * len(unique))

    def read(self) -> None:
        """Look at the work that was given; what cannot be used is said once."""
        if self._given_work is None:
            return
        given, self._given_work = self._given_work, None
        try:
            work = checked(given, self.size)
        except WorkError as error:
            faults.log_once(
                f"step-work-{error.kind}", "gputrace.step: %s; the members of such a step count alike", error
            )
            return
        self.work = work
        self.vectors = [covariates(one, self.size) for one in work]
        self.total = summed(self.vectors)

    def weigh(self, prices: Prices) -> None:
        """Set the weights, for good.

        Args:
            prices: What its tokens cost.
        """
        if not self.work:
            given = Counter(self.served)
            self.weights = [given[one] for one in self.members]
            return
        self.prices = prices
        fixed, prefill, decode, context, pairs = prices.theta
        prompts, beyond = dict.fromkeys(self.members, 0.0), dict.fromkeys(self.members, 0.0)
        for one, x, done in zip(self.served, self.vectors, self.work, strict=True):
            # The fixed part is of both, by tokens.
            of_prompt = done[0] / (done[0] + done[1]) if done[0] else 0.0
            shared = fixed * x[0]
            prompts[one] += shared * of_prompt + prefill * x[1] + pairs * x[4]
            beyond[one] += shared * (1 - of_prompt) + decode * x[2] + context * x[3]
        self.prompts = list(prompts.values())
        self.taken = [one + other for one, other in zip(self.prompts, beyond.values(), strict=True)]
        self.weights = whole_weights(self.taken)


class step(BatchBlock):  # noqa: N801 - used like a function
    """Track a block that is one step of a model server, with ``with`` or ``async with``.

    As :func:`batch`, but for the weights: each member's share follows from what it does in the step.
    How long a token of each kind takes is learnt from the steps themselves, for each model and
    kind of device. ``__enter__`` and ``__exit__`` may be called by hand, where the step begins in
    one function and ends in another.

    Args:
        members: What :func:`member` returned for each; a request stands for itself, None for
            nobody. A step without members is billed to the feature ``__overhead__``.
        work: What each does, in the same order.
        operation: Name of the step.
        model: Model that does the work.
        variant: Variant of the model.
        stage: Stage of a cascade or pipeline.
        devices: Devices that it uses; the current one by default.
        streams: Side streams that are timed as well as the current one.
        hold: ``call``, ``steps`` or ``none``.
        counted: Count the call, its tokens and the calls of requests; False where another process
            counts the same step. Device time is charged either way.
        span: Make a span, where the trace is sampled; False for a server that makes a hundred steps a
            second.
        attributes: More attributes for the span.

    Raises:
        ValueError: ``hold``, ``devices`` or ``streams`` cannot be used; names it. Members and work
            come with requests: wrong ones are reported once, and count as nobody and equal.
    """

    __slots__ = ("_counted", "_members", "_work")

    def __init__(  # noqa: PLR0913 - as batch()
        self,
        members: Iterable[Member | Request | None],
        work: Iterable[Work],
        *,
        operation: str = "step",
        model: str | None = None,
        variant: str | None = None,
        stage: str | None = None,
        devices: Any = None,
        streams: Sequence[Any] | None = None,
        hold: str = HOLD_CALL,
        counted: bool = True,
        span: bool = True,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        fields = tolerated_fields({"model": model, "variant": variant, "stage": stage}, "step")
        self._site = site_of_batches(operation, fields, hold, devices, streams, attributes, span=span)
        self._members = as_members(members)
        self._work = _read(work) if self._members else None
        self._counted = counted
        self._calls = OpenCalls()

    def __enter__(self) -> Call:
        served = StepBatch(self._members or [_OVERHEAD], self._work, counted=self._counted)
        return self._entered(served, len(self._members))


def _read(work: Iterable[Work]) -> Sequence[Work]:
    """Return what was given; nothing where it cannot be read, which fits no members."""
    if isinstance(work, list | tuple):
        return work
    with _READING:
        return list(work)
    return ()
