"""Identities of traces and spans that do not follow from the seed of the program.

The SDK draws them from Python's own generator, which programs that train or serve models seed, each with the
same number: every rank of a job, and every start of it, would give its spans the same ids.
"""

from __future__ import annotations

import os
import random

from opentelemetry.sdk.trace.id_generator import IdGenerator

_own = random.Random()  # noqa: S311 - ids, not secrets
os.register_at_fork(after_in_child=_own.seed)


class OwnIds(IdGenerator):
    """Draws from a generator of its own."""

    def generate_span_id(self) -> int:
        """Return an id that is not 0."""
        return _own.getrandbits(64) or 1

    def generate_trace_id(self) -> int:
        """Return an id that is not 0."""
        return _own.getrandbits(128) or 1
