"""Weighs the members of steps, before anything is split among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace.steps import StepBatch
from gputrace.steps_weights import CONSTANTS

if TYPE_CHECKING:
    from gputrace.following import Followed


class Steps:
    """The steps of model servers that are followed."""

    @staticmethod
    def opened(followed: Followed) -> None:
        """Take note of a call that takes part in the ledger: what it is charged may be split from here on."""
        served = followed.batch
        if isinstance(served, StepBatch) and not served.weighed:
            served.weigh(CONSTANTS)
