"""Follows batches: who waits for them, who their members are, and which are steps of a model server."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.settler_steps import Steps

if TYPE_CHECKING:
    from gputrace.accounts import Totals
    from gputrace.attribution import Attribution
    from gputrace.batching import Batch
    from gputrace.following import Followed

    Rows = list[tuple[dict[str, str], float]]
    Key = tuple[tuple[str, str], ...]

#: Combinations whose keys are remembered: those that never come again must not pile up.
_REMEMBERED_LIMIT = 4_096


class Batches:
    """The batches that are followed, and how many members they had.

    Args:
        totals: Caps the names, and how many sets there are of them.

    Attributes:
        steps: Those that are steps of model servers.
    """

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self.steps = Steps(totals)
        self._members: dict[Key, int] = {}
        self._member_keys: dict[tuple[Attribution, str], Key] = {}

    def concluded(self, followed: Followed) -> None:
        """Take note that a call is settled: a batch, one under a batch, or neither."""
        call, batch = followed.call, followed.batch
        if call.site.is_batch:
            if call.batch.counts_members:
                self._count_members(followed)
            self.steps.concluded(followed)
        if batch is not None:
            batch.following -= 1
            if not batch.following:
                self._served(batch)
                self.steps.served(batch)

    def _count_members(self, followed: Followed) -> None:
        """Count the members of a batch."""
        call = followed.call
        served: Batch = call.batch
        operation = call.site.operation
        # The same object for the same fields, so that it can be remembered by itself.
        for billed, members in Counter(served.billed(call)).items():
            key = self._member_keys.get((billed, operation))
            if key is None:
                if len(self._member_keys) >= _REMEMBERED_LIMIT:
                    self._member_keys.clear()
                key = self._member_keys[billed, operation] = self._member_key(billed, operation)
            self._members[key] = self._members.get(key, 0) + members

    def _member_key(self, billed: Attribution, operation: str) -> Key:
        given = {
            catalogue.FEATURE: billed.feature or catalogue.NO_FEATURE,
            catalogue.OPERATION: operation,
            catalogue.MODEL: billed.model,
            catalogue.VARIANT: billed.variant,
            catalogue.STAGE: billed.stage,
        }
        kept = {name: self._totals.kept(name, value) for name, value in given.items() if value is not None}
        return tuple(self._totals.counted_as(catalogue.BATCH_MEMBERS, kept).items())

    @staticmethod
    def _served(batch: Batch) -> None:
        """Let those whom a batch served wait no longer: it is settled, and so are all calls under it."""
        for one in batch.members:
            one.forget()
        for request in batch.requests():
            request.calls += batch.counted
            request.expected.pop()
        for work in batch.staged_work():
            work.awaited.pop()

    def rows(self) -> dict[str, Rows]:
        """Return what to show, by the name of the metric."""
        members: Rows = [(dict(key), count) for key, count in self._members.items()]
        return {**self.steps.rows(), catalogue.BATCH_MEMBERS.name: members}
