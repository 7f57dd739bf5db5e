"""How requests of vLLM ended, from the scheduler, which knows it, to the workers, which bill them.

Workers are told by the scheduler's output which requests have ended, and not how. So the answer travels on
the same object, which is pickled as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gputrace import faults

if TYPE_CHECKING:
    from collections.abc import Callable

#: The attribute of ``SchedulerOutput`` under which it travels.
ATTRIBUTE = "gputrace_ended"

_PENDING = "_gputrace_ended"

_NOTING = faults.contained("note how a request of vLLM ended")
_SENDING = faults.contained("tell vLLM's workers how requests ended")

_ABORTED = "FINISHED_ABORTED"
_FAILED = "FINISHED_ERROR"


class Ended(NamedTuple):
    """How a request ended.

    Attributes:
        status: ``cancelled`` or ``error``, None for ok.
        reason: vLLM's own word for it.
        output: Tokens that it was given.
        preemptions: How often it had to make room for others.
    """

    status: str | None
    reason: str
    output: int
    preemptions: int


def freeing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return what takes the place of ``Scheduler._free_request``."""

    def _free_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        with _NOTING:
            pending = self.__dict__.setdefault(_PENDING, {})
            pending[request.request_id] = _of(request)
        return original(self, request, *args, **kwargs)

    return _free_request


def _of(request: Any) -> Ended:
    reason = request.status.name
    status = "error" if reason == _FAILED else None
    if reason == _ABORTED and not _may_have_stopped(request):
        status = "cancelled"
    return Ended(status, reason, int(request.num_output_tokens), int(getattr(request, "num_preemptions", 0)))


def _may_have_stopped(request: Any) -> bool:
    """Tell whether an abort may be how the front end says that it found a stop string.

    It alone has the text, and aborts what the scheduler would go on with: far more often than clients go.
    """
    return bool(getattr(request.sampling_params, "stop", None))


def scheduling(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return what takes the place of ``Scheduler.schedule``."""

    def schedule(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = original(self, *args, **kwargs)
        with _SENDING:
            pending = self.__dict__.pop(_PENDING, None)
            if pending:
                setattr(output, ATTRIBUTE, {name: tuple(how) for name, how in pending.items()})
        return output

    return schedule


def ended(output: Any) -> dict[str, Ended]:
    """Return what the scheduler says of the requests that have ended, by their ids."""
    return {name: Ended(*how) for name, how in getattr(output, ATTRIBUTE, {}).items()}
