"""Log records that say what the work was billed to, so that logs and telemetry can be joined."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.attribution import UNNAMED, enclosing_call, scope_in_force

if TYPE_CHECKING:
    from logging import LogRecord


class LoggingFilter(logging.Filter):
    """Adds ``gputrace_feature``, ``gputrace_tenant`` and ``gputrace_call_id`` to every record.

    Put it on handlers: a filter on a logger does not see the records of loggers
    below it. Where nothing is in force the feature is ``__none__`` and the others
    are empty, so that a format which names them always works. What a record has
    already it keeps: a listener in another thread knows less than who logged.
    """

    def filter(self, record: LogRecord) -> bool:
        """Add the fields. Every record passes, unless the filter was given the name of a logger."""
        scope = scope_in_force()
        billed = UNNAMED if scope is None else scope.attribution
        call = enclosing_call(scope)
        had = record.__dict__
        had.setdefault("gputrace_feature", billed.feature or catalogue.NO_FEATURE)
        had.setdefault("gputrace_tenant", billed.tenant or "")
        had.setdefault("gputrace_call_id", "" if call is None else call.label)
        return bool(super().filter(record))
