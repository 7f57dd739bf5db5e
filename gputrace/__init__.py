"""Which product feature spends the GPUs, how much nobody used, and whether the large model pays."""

from gputrace.attribution import attribute_to, current
from gputrace.batching import batch, member
from gputrace.lifecycle import configure, flush, shutdown
from gputrace.requests import request
from gputrace.tracking import track
from gputrace.tracking_blocks import span

__all__ = [
    "attribute_to",
    "batch",
    "configure",
    "current",
    "flush",
    "member",
    "request",
    "shutdown",
    "span",
    "track",
]
