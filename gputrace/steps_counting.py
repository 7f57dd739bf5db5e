"""What the members of settled steps come to: tokens, and device time by phase."""

from __future__ import annotations

import operator
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from gputrace import catalogue, ledger
from gputrace.steps_work import COEFFICIENTS, Work, covariates

if TYPE_CHECKING:
    from gputrace.accounts import Totals
    from gputrace.attribution import Attribution
    from gputrace.batching import Member
    from gputrace.steps import StepBatch
    from gputrace.steps_work import Vector

    Rows = list[tuple[dict[str, str], float]]
    Key = tuple[tuple[str, str], ...]

_UNITS_PER_S = ledger.SCALE * 1_000_000_000
_PREFILL, _PAIRS = COEFFICIENTS.index("prefill"), COEFFICIENTS.index("pairs")
#: Combinations whose counts are remembered: those that never come again must not pile up.
_REMEMBERED_LIMIT = 4_096


class Counted:
    """What one feature and tenant had of the steps of one model.

    Attributes:
        members: Sequences in steps.
        tokens: By kind.
        time: Charged, in 1/``SCALE`` ns, by phase and weights.
        cached_s: What its cached tokens would have taken.
        recomputed_s: What its recomputed tokens took.
    """

    __slots__ = ("cached_s", "members", "recomputed_s", "time", "tokens")

    def __init__(self) -> None:
        self.members = 0
        self.tokens = dict.fromkeys(catalogue.STEP_KINDS, 0)
        self.time: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.cached_s = 0.0
        self.recomputed_s = 0.0

    def add_tokens(self, done: Work) -> None:
        """Count what one sequence did in a step."""
        prefill, decode, _, cached, recomputed = done
        self.members += 1
        tokens = self.tokens
        tokens["prefill"] += prefill
        tokens["decode"] += decode
        tokens["cached"] += cached
        tokens["recomputed"] += recomputed

    def add_time(self, amount: int, of_prompt: float, weighing: str) -> None:
        """Count what was charged.

        Args:
            amount: 1/``SCALE`` ns.
            of_prompt: What of it went to prompts, 0 to 1.
            weighing: How it was weighed.
        """
        prompts = amount if of_prompt >= 1 else int(amount * of_prompt)
        self.time["prefill", weighing] += prompts
        self.time["decode", weighing] += amount - prompts


class Counting:
    """The counts of all steps.

    Args:
        totals: Caps the names, and how many sets there are of them.
    """

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self._counted: dict[Key, Counted] = {}
        self._remembered: dict[tuple[str | None, str | None, Key], Counted] = {}

    def add(self, served: StepBatch, server: dict[str, str]) -> None:
        """Count a step that is settled, with all under it.

        Args:
            served: The step.
            server: Attributes of its model and device.
        """
        charged, key = served.charged_by_member(), tuple(server.items())
        counts = [self._of(one.attribution, key) for one in served.members]
        if not served.work:
            for counted, amount in zip(counts, charged, strict=True):
                counted.time["other", "none"] += amount
            return
        # Of the many members of a step, few are counted apart.
        sums: dict[Counted, list[Any]] = {}
        for counted, *of_one in zip(counts, charged, served.prompts, served.taken, strict=True):
            known = sums.get(counted)
            sums[counted] = of_one if known is None else list(map(operator.add, known, of_one))
        weighing = "fitted" if served.prices.parts else "constants"
        for counted, (amount, of_prompt, taken) in sums.items():
            counted.add_time(amount, of_prompt / taken if taken else 0.0, weighing)
        self._add_work(served, dict(zip(served.members, counts, strict=True)), sum(charged))

    def _add_work(self, served: StepBatch, counts: dict[Member, Counted], charged: int) -> None:
        everything = sum(served.taken)
        # So many seconds is what takes one of the prices' unit.
        rate_s = charged / _UNITS_PER_S / everything if everything > 0 else 0.0
        theta = served.prices.theta
        for one, done in zip(served.served, served.work, strict=True):
            counted = counts[one]
            if served.counted:
                counted.add_tokens(done)
            if done.cached:
                counted.cached_s += rate_s * _of_prompt(theta, Work(prefill=done.cached))
            if done.recomputed:
                # They come first: what is recomputed lay before what is new.
                again = Work(prefill=done.recomputed, context=done.context)
                counted.recomputed_s += rate_s * _of_prompt(theta, again)

    def _of(self, billed: Attribution, server: Key) -> Counted:
        found = (billed.feature, self._totals.names.tenant_shown(billed), server)
        counted = self._remembered.get(found)
        if counted is None:
            feature, tenant, _ = found
            kept = {catalogue.FEATURE: self._totals.kept(catalogue.FEATURE, feature or catalogue.NO_FEATURE)}
            if tenant is not None:
                kept[catalogue.TENANT] = tenant
            key = tuple(self._totals.counted_as(catalogue.STEP_MEMBERS, kept | dict(server)).items())
            counted = self._counted.setdefault(key, Counted())
            if len(self._remembered) >= _REMEMBERED_LIMIT:
                self._remembered.clear()
            self._remembered[found] = counted
        return counted

    def rows(self) -> dict[str, Rows]:
        """Return what to show, by the name of the metric."""
        rows: dict[str, Rows] = defaultdict(list)
        for key, counted in self._counted.items():
            named = dict(key)
            for metric, value in (
                (catalogue.STEP_MEMBERS, counted.members),
                (catalogue.STEP_CACHED_TIME, counted.cached_s),
                (catalogue.STEP_RECOMPUTED_TIME, counted.recomputed_s),
            ):
                if value:
                    rows[metric.name].append((named, value))
            rows[catalogue.STEP_TOKENS.name] += [
                ({**named, catalogue.STEP_KIND: kind}, tokens)
                for kind, tokens in counted.tokens.items()
                if tokens
            ]
            rows[catalogue.STEP_TIME.name] += [
                (
                    {**named, catalogue.STEP_PHASE: phase, catalogue.STEP_WEIGHTS: weights},
                    amount / _UNITS_PER_S,
                )
                for (phase, weights), amount in counted.time.items()
                if amount
            ]
        return rows


def _of_prompt(theta: Vector, done: Work) -> float:
    x = covariates(done, 1)
    return theta[_PREFILL] * x[_PREFILL] + theta[_PAIRS] * x[_PAIRS]
