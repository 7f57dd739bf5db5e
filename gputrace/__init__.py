"""Which product feature spends the GPUs, how much nobody used, and whether the large model pays."""

from gputrace.attribution import attribute_to
from gputrace.attribution_current import current
from gputrace.attribution_marks import feature
from gputrace.baggage import inject
from gputrace.batching import batch, member
from gputrace.carrying import carry
from gputrace.cascades import Cascade, score
from gputrace.cascades_decorator import cascade
from gputrace.cascades_recording import record_decision
from gputrace.integrations import instrument, instrument_ray
from gputrace.intervals import record_interval
from gputrace.lifecycle import configure, flush, shutdown
from gputrace.logs import LoggingFilter
from gputrace.outcomes import outcome
from gputrace.requests import request
from gputrace.steps import step
from gputrace.steps_work import Work
from gputrace.tracking import track
from gputrace.tracking_blocks import span

__all__ = [
    "Cascade",
    "LoggingFilter",
    "Work",
    "attribute_to",
    "batch",
    "carry",
    "cascade",
    "configure",
    "current",
    "feature",
    "flush",
    "inject",
    "instrument",
    "instrument_ray",
    "member",
    "outcome",
    "record_decision",
    "record_interval",
    "request",
    "score",
    "shutdown",
    "span",
    "step",
    "track",
]
