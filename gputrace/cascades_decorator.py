"""``cascade``: a cascade over two functions that are there already."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from gputrace import faults, tracking
from gputrace.call_site import HOLD_NONE
from gputrace.cascades import Cascade

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gputrace.cascades_requests import CascadeRequest

P = ParamSpec("P")
R = TypeVar("R")

_CASCADE = "cascade"


class cascade:  # noqa: N801 - used like a function
    """Decorate the light function: where it is unsure, the heavy one answers the same call.

        @gputrace.cascade("answer", heavy=large, threshold=0.8)
        def answer(question): return text, confidence

    The decorated function returns what ``heavy`` returns, or what the light one did.
    Both are plain functions, or both coroutine functions; what they were tracked as
    they stay. An audit calls ``heavy`` with the same arguments.

    Args:
        name: Name of the cascade.
        heavy: Takes the same arguments.
        confidence: Told what the light function returned; returns how sure that is. By default
            the light function returns a pair, the answer and how sure it is.
        feature: Product feature that is billed; else that of the enclosing scope.
        stages: Names of the two.
        **options: As for :class:`gputrace.Cascade`: threshold, rule, audit_rate and so on.

    Raises:
        ValueError: An argument cannot be used; names it.
        TypeError: One of the functions cannot be called, or only one is a coroutine function.
    """

    def __init__(
        self,
        name: str,
        *,
        heavy: Callable[..., Any],
        confidence: Callable[[Any], Any] | None = None,
        feature: str | None = None,
        stages: Sequence[str] = ("light", "heavy"),
        **options: Any,
    ) -> None:
        # The two functions hold the device as they were tracked, in audits too; nothing around them does.
        self.cascade = Cascade(name, stages=stages, hold=HOLD_NONE, **options)
        if len(self.cascade.stages) != 2:  # noqa: PLR2004 - light and heavy
            message = f"cascade({name!r}): stages={stages!r} must name the two functions' stages"
            raise ValueError(message)
        if not callable(heavy):
            message = f"cascade({name!r}): heavy={heavy!r} cannot be called"
            raise TypeError(message)
        self._heavy = heavy
        self._confidence = confidence
        self._feature = feature

    def __call__(self, light: Callable[P, Any]) -> Callable[P, Any]:
        """Return the light function with the heavy one behind it.

        Raises:
            TypeError: It cannot be called, or only one of the two is a coroutine function.
        """
        name = self.cascade.name
        if not callable(light):
            message = f"cascade({name!r}): {light!r} cannot be called; decorate the light function"
            raise TypeError(message)
        if _is_async(light) != _is_async(self._heavy):
            message = f"cascade({name!r}): one function is a coroutine function and the other is not"
            raise TypeError(message)
        wrapper: Callable[P, Any] = self._async(light) if _is_async(light) else self._sync(light)
        functools.update_wrapper(wrapper, light)
        setattr(wrapper, _CASCADE, self.cascade)
        return wrapper

    def _sync(self, light: Callable[..., Any]) -> Any:
        first, second = self.cascade.stages
        light, heavy = self._tracked(light)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self.cascade.request(feature=self._feature) as request:
                with request.stage(first):
                    returned = light(*args, **kwargs)
                answer, escalated = self._judged(request, returned, functools.partial(heavy, *args, **kwargs))
                if not escalated:
                    return answer
                with request.stage(second):
                    return heavy(*args, **kwargs)

        return wrapper

    def _async(self, light: Callable[..., Any]) -> Any:
        first, second = self.cascade.stages
        light, heavy = self._tracked(light)

        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            async with self.cascade.request(feature=self._feature) as request:
                async with request.stage(first):
                    returned = await light(*args, **kwargs)
                answer, escalated = self._judged(request, returned, functools.partial(heavy, *args, **kwargs))
                if not escalated:
                    return answer
                async with request.stage(second):
                    return await heavy(*args, **kwargs)

        return wrapper

    def _tracked(self, light: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
        # Their own calls hold the device, step by step; the stages only sum them up.
        names = self.cascade.stages
        tracked = [
            tracking.track(stage=stage)(functools.partial(one))
            for one, stage in zip((light, self._heavy), names, strict=True)
        ]
        return tracked[0], tracked[1]

    def _judged(self, request: CascadeRequest, returned: Any, audit: Callable[[], Any]) -> tuple[Any, bool]:
        """Return the light answer, and whether the heavy one is needed."""
        answer, confidence = returned, None
        if self._confidence is not None:
            with faults.tolerated(f"confidence= of cascade {self.cascade.name!r}"):
                confidence = self._confidence(returned)
        elif isinstance(returned, tuple) and len(returned) == 2:  # noqa: PLR2004 - answer and confidence
            answer, confidence = returned
        return answer, request.escalate(confidence, audit=audit)


def _is_async(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    call = type(function).__call__ if not inspect.isroutine(function) else None
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
