"""A scheduler of SGLang, which runs the model too: each batch is one call, from launch to last sample.

On the stream on which the forward runs: with overlapped scheduling that is not the one that is current where
a batch is launched. The next batch is launched while one runs, on the same stream: they do not overlap.
"""

from __future__ import annotations

import importlib
import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from gputrace import faults
from gputrace.integrations import serving_steps, sglang_members
from gputrace.integrations.serving_exports import Exports
from gputrace.integrations.serving_steps import OpenStep
from gputrace.integrations.sglang_members import Members
from gputrace.integrations.sglang_requests import Requests

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputrace.batching import Member
    from gputrace.integrations.sglang_members import Progress

#: Reasons under which batches are counted that could not be split or were not timed.
UNREADABLE = "sglang_step_unreadable"
SPLIT_PREFILL = "sglang_split_prefill"

_OPERATION, _IDLE = "sglang step", "sglang idle step"
_STATE = "_gputrace_steps"
_RUNTIME = "sglang.srt.runtime_context"

_BEGINNING = faults.contained("begin a step of SGLang")
_CLOSING = faults.contained("close requests of SGLang")


class Steps:
    """The steps of one scheduler, of which one is open at a time.

    Args:
        scheduler: SGLang's ``Scheduler``.
    """

    def __init__(self, scheduler: Any) -> None:
        self.process_id = os.getpid()
        runtime = importlib.import_module(_RUNTIME)
        # Every rank of an engine runs every batch, on a device of its own. Ranks of data parallel attention
        # have requests of their own, and so one that counts each.
        ranks = runtime.get_parallel()
        counted = ranks.pp_rank == ranks.attn_tp_rank == ranks.attn_cp_rank == 0
        drafts = runtime.get_spec().speculative_num_draft_tokens
        self._requests = Requests(scheduler, counted=counted)
        self._members: Members[Member] = Members(self._requests.begin, self._end, drafts or 0)
        self._step = OpenStep(str(runtime.get_serving().served_model_name), counted=counted)
        self._scheduler = scheduler
        serving_steps.configure()
        self._exports = Exports()

    def begin(self, batch: Any) -> None:
        """Begin a step.

        Args:
            batch: SGLang's ``ScheduleBatch``.
        """
        self.end()
        mode = batch.forward_mode
        if mode.is_prebuilt():
            # Computed elsewhere: nothing runs here, or an idle batch that comes by itself.
            return
        if mode.is_split_prefill():
            faults.unmeasured(SPLIT_PREFILL)
            return
        members, work = self._members.of(batch)
        with self._on_its_stream():
            self._step.begin(_OPERATION if batch.reqs else _IDLE, members, work)

    def end(self, error: BaseException | None = None) -> None:
        """End the step that is open, if one is.

        Args:
            error: What it raised.
        """
        if self._step.is_open:
            with self._on_its_stream():
                self._step.end(error)
            self._exports.worked()

    def _on_its_stream(self) -> AbstractContextManager[Any]:
        """Make the stream current on which the forward runs."""
        scheduler = self._scheduler
        if not scheduler.enable_overlap:
            return nullcontext()
        # Not the scheduler's own context: it may be in it already, and would not find out again.
        made: AbstractContextManager[Any] = scheduler.device_module.stream(scheduler.forward_stream)
        return made

    def _end(self, req: Any, progress: Progress[Member], how: Any) -> None:
        self._requests.end(req, progress, how)
        self._exports.worked()


def _steps_of(scheduler: Any) -> Steps:
    steps: Steps | None = getattr(scheduler, _STATE, None)
    if steps is None or steps.process_id != os.getpid():
        steps = Steps(scheduler)
        setattr(scheduler, _STATE, steps)
    return steps


def running(original: Callable[..., Any], self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
    """Stand around ``Scheduler.run_batch``."""
    steps, begun = None, False
    with _BEGINNING:
        steps = _steps_of(self)
        steps.begin(batch)
        begun = True
    if not begun:
        faults.unmeasured(UNREADABLE)
    result = serving_steps.run(steps, original, self, batch, *args, **kwargs)
    if getattr(result, "delay_sample_func", None) is None:
        serving_steps.end(steps)
    return result


def sampling(original: Callable[..., Any], self: Any, batch_result: Any, *args: Any, **kwargs: Any) -> Any:
    """Stand around ``Scheduler.launch_batch_sample_if_needed``, which samples what waited for a grammar."""
    steps = getattr(self, _STATE, None)
    result = serving_steps.run(steps, original, self, batch_result, *args, **kwargs)
    serving_steps.end(steps)
    return result


def streaming(original: Callable[..., Any], self: Any, reqs: Any, *args: Any, **kwargs: Any) -> Any:
    """Stand around ``SchedulerOutputStreamer.stream_output``, which tells what requests have come to."""
    result = original(self, reqs, *args, **kwargs)
    with _CLOSING:
        for req in reqs:
            if req.finished_reason is not None:
                sglang_members.ended(req, req.finished_reason)
    return result


def answering(
    original: Callable[..., Any], self: Any, output: Any, recv_obj: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """Stand around ``SenderWrapper.send_output``, which tells of requests that end outside of any batch."""
    with _CLOSING:
        if type(output).__name__ == "AbortReq":
            sglang_members.ended(recv_obj, output.finished_reason)
    return original(self, output, recv_obj, *args, **kwargs)
