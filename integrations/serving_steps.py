"""The step of a model server that a worker has open, and how the functions around it end it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry import trace as trace_api
from opentelemetry.metrics import _internal as metrics_internal

import gputrace
from gputrace import faults

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gputrace.batching import Member

_CONFIGURING = faults.contained("configure a worker of a model server")
_ENDING = faults.contained("end a step of a model server")


class OpenStep:
    """The steps of one worker, of which one is open at a time.

    Args:
        model: What is served.
        counted: This is the rank that counts steps; the others only charge their devices.
    """

    def __init__(self, model: str, *, counted: bool) -> None:
        self._model = model
        self._counted = counted
        self._open: gputrace.step | None = None

    def begin(self, operation: str, members: Sequence[Member | None], work: Sequence[gputrace.Work]) -> None:
        """Begin a step.

        Args:
            operation: What it is called.
            members: Whom it serves; nobody makes it overhead.
            work: What each does in it.
        """
        # Without a span: a server makes a hundred a second.
        opened = gputrace.step(
            members, work, operation=operation, model=self._model, counted=self._counted, span=False
        )
        opened.__enter__()
        self._open = opened

    @property
    def is_open(self) -> bool:
        """A step was begun and has not ended."""
        return self._open is not None

    def end(self, error: BaseException | None = None) -> None:
        """End the step that is open.

        Args:
            error: What it raised.
        """
        opened, self._open = self._open, None
        if opened is not None:
            opened.__exit__(None if error is None else type(error), error, None)


def configure() -> None:
    """Configure gputrace in a worker, unless somebody has done so."""
    with _CONFIGURING:
        # Whoever has set both has done so on purpose.
        if trace_api._TRACER_PROVIDER is None or metrics_internal._METER_PROVIDER is None:  # noqa: SLF001 - the getters make proxies
            gputrace.configure()


def run(steps: Any, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function of the server's; what it raises ends the step that is open.

    Args:
        steps: What has a method ``end``; None where there is none.
        original: The function.
        *args: Its arguments.
        **kwargs: Its arguments.
    """
    try:
        return original(*args, **kwargs)
    except BaseException as error:
        end(steps, error)
        raise


def end(steps: Any, error: BaseException | None = None) -> None:
    """End the step that is open, if one is.

    Args:
        steps: What has a method ``end``; None where there is none.
        error: What it raised.
    """
    with _ENDING:
        if steps is not None:
            steps.end(error)
