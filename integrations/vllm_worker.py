"""A worker of vLLM: each step that the engine schedules is one call, from its launch to its last sample.

On the worker's thread and the stream that is current on it, to which all side streams of vLLM return. With
asynchronous scheduling the next step is launched while one runs: on one stream they do not overlap.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import gputrace
from gputrace import faults
from gputrace.integrations import serving_steps, vllm_scheduler
from gputrace.integrations.serving_exports import Exports
from gputrace.integrations.serving_steps import OpenStep
from gputrace.integrations.vllm_members import Members
from gputrace.integrations.vllm_requests import Requests

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputrace.batching import Member

#: Reasons under which steps are counted that could not be split or were not seen.
UNREADABLE = "vllm_step_unreadable"
UNSEEN_BEGINNING = "vllm_request_unseen"
COMPILED_DAG = "vllm_ray_compiled_dag"

_OPERATION, _DUMMY = "vllm step", "vllm dummy step"
_STATE = "_gputrace_steps"

_READING = faults.contained("read whom a step of vLLM serves")
_BEGINNING = faults.contained("begin a step of vLLM")
_CLOSING = faults.contained("close requests of vLLM")
_FLUSHING = faults.contained("flush when a worker of vLLM stops")

#: What a worker that stops waits at most for exporters, s.
_FLUSH_TIMEOUT_S = 1.8


class _Whom(NamedTuple):
    members: list[Any]
    work: list[gputrace.Work]


class Steps:
    """The steps of one worker, of which one is open at a time.

    Args:
        wrapper: vLLM's ``WorkerWrapperBase``.
    """

    def __init__(self, wrapper: Any) -> None:
        self.process_id = os.getpid()
        model = wrapper.vllm_config.model_config
        served = getattr(model, "served_model_name", None)
        # Of several names the first is the one that vLLM itself shows.
        name = str((served[0] if isinstance(served, list) else served) or model.model)
        # Every rank of an engine runs every step, on a device of its own.
        counted = wrapper.rpc_rank == 0
        self._requests = Requests(counted=counted)
        self._members: Members[Member] = Members(self._requests.begin)
        self._step = OpenStep(name, counted=counted)
        serving_steps.configure()
        self._exports = Exports()

    def begin(self, output: Any) -> None:
        """Begin a step.

        Args:
            output: vLLM's ``SchedulerOutput``.
        """
        self.end()
        whom = None
        if output.finished_req_ids:
            with _CLOSING:
                self._close(output)
        if not output.total_num_scheduled_tokens:
            # Only tells what has ended.
            return
        with _READING:
            whom = self._whom(output)
        if whom is None:
            faults.unmeasured(UNREADABLE)
        else:
            self._step.begin(_OPERATION, *whom)

    def _whom(self, output: Any) -> _Whom:
        before = self._members.strangers
        whom = _Whom(*self._members.of(output))
        for _ in range(self._members.strangers - before):
            faults.unmeasured(UNSEEN_BEGINNING)
        return whom

    def begin_dummy(self) -> None:
        """Begin a step that serves nobody: an engine keeps up with the others of its group."""
        self.end()
        self._step.begin(_DUMMY, [], [])

    def end(self, error: BaseException | None = None) -> None:
        """End the step that is open, if one is.

        Args:
            error: What it raised.
        """
        if self._step.is_open:
            self._step.end(error)
            self._exports.worked()

    def _close(self, output: Any) -> None:
        left, how = self._members.left(output), vllm_scheduler.ended(output)
        for name in output.finished_req_ids:
            self._requests.end(name, left.get(name), how.get(name))
        self._exports.worked()


def _steps_of(wrapper: Any) -> Steps:
    # Not with getattr: what a wrapper does not have it asks of its worker.
    steps: Steps | None = wrapper.__dict__.get(_STATE)
    if steps is None or steps.process_id != os.getpid():
        steps = wrapper.__dict__[_STATE] = Steps(wrapper)
    return steps


def executing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return what takes the place of ``WorkerWrapperBase.execute_model``."""

    def execute_model(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        steps = None
        with _BEGINNING:
            steps = _steps_of(self)
            steps.begin(scheduler_output)
        result = serving_steps.run(steps, original, self, scheduler_output, *args, **kwargs)
        if result is not None:
            # Nothing is sampled: it pools, or hands on to another rank.
            serving_steps.end(steps)
        return result

    return execute_model


def sampling(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return what takes the place of ``sample_tokens``, which ends the step that was begun."""

    def sample_tokens(self: Any, *args: Any, **kwargs: Any) -> Any:
        steps = self.__dict__.get(_STATE)
        result = serving_steps.run(steps, original, self, *args, **kwargs)
        serving_steps.end(steps)
        return result

    return sample_tokens


def idling(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return what takes the place of ``execute_dummy_batch``."""

    def execute_dummy_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
        steps = None
        with _BEGINNING:
            steps = _steps_of(self)
            steps.begin_dummy()
        result = serving_steps.run(steps, original, self, *args, **kwargs)
        serving_steps.end(steps)
        return result

    return execute_dummy_batch


def stopping(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return what takes the place of ``WorkerWrapperBase.shutdown``."""

    def shutdown(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _FLUSHING:
            if _STATE in self.__dict__:
                # vLLM kills what does not end at once.
                gputrace.flush(_FLUSH_TIMEOUT_S)
        return original(self, *args, **kwargs)

    return shutdown


def compiled(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return what takes the place of ``execute_model_ray``, whose steps go past the wrapper."""

    def execute_model_ray(self: Any, *args: Any, **kwargs: Any) -> Any:
        faults.unmeasured(COMPILED_DAG)
        return original(self, *args, **kwargs)

    return execute_model_ray
