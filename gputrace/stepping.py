"""Runs generators and coroutines step by step, so that a call holds only while its own code runs.

Each function here wraps one that makes a coroutine, a generator or an async
generator: the wrapper begins a call with the first step, delegates everything
(PEP 380, PEP 525) and leaves the call at the end. The scope of the call is
current for one step at a time: both the setting and the restoring happen in
whichever context the step runs in, so that resuming or closing in another
task is as good as in the first.

A wrapper keeps nothing alive that the bare function would have freed, neither
arguments nor items: they may be large, and on a GPU. And it throws outside of
``except``, so that the body does not find itself handling an error twice.

What a wrapper names here is found through modules: it is pickled by value, and
must not drag a ContextVar along.
"""

from __future__ import annotations

import contextvars
import inspect
import sys
import types
from contextvars import Token
from typing import TYPE_CHECKING, Any

from gputrace import call as calls

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from gputrace.call import Call

#: Results whose work comes later: the call that returned one goes on until they end.
DEFERRED = frozenset({types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType})


@types.coroutine
def _drive(awaited: Any, call: Call) -> Generator[Any, Any, Any]:
    """Await a coroutine, or one step of an async generator, marking each suspension."""
    thrown: BaseException | None = None
    value: Any = None
    while True:
        try:
            value = awaited.send(value) if thrown is None else awaited.throw(thrown)
        except StopIteration as stop:
            return stop.value
        except BaseException:
            # A step of an async generator holds what was thrown into it, perhaps the very error: no rings.
            awaited = None
            raise
        finally:
            thrown = None
        calls.suspend(call)
        closing = False
        try:
            value = yield value
        except GeneratorExit:
            closing = True
            _outlast(call)
        except BaseException as error:  # noqa: BLE001 - goes into the coroutine, as it would without us
            thrown = error
            value = None
        calls.resume(call)
        if closing:
            awaited.close()
            raise GeneratorExit


async def _awaiting(awaitable: Any) -> Any:
    return await awaitable


def _outlast(call: Call) -> None:
    """Keep this thread's context as it is until a call that is being closed is settled.

    It may be the garbage collector that closes an abandoned generator or
    coroutine, and before Python 3.12 that runs in the midst of anything, also
    of a ``ContextVar.set``, which then reads what our own has freed
    (https://github.com/python/cpython/issues/148891).
    """
    if sys.version_info < (3, 12):
        call.outlasting = contextvars.copy_context()


def coroutine_function(function: Callable[..., Any], begin: Callable[[], Call]) -> Callable[..., Any]:
    """Wrap a function that makes coroutines.

    Args:
        function: Returns the coroutine.
        begin: Opens the call, or resumes it, at the first step.
    """

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        coroutine = function(*args, **kwargs)
        del args, kwargs
        if type(coroutine) is not types.CoroutineType:
            # Only marked as a coroutine function: what it returns can be awaited, no more.
            coroutine = _awaiting(coroutine)
        call = begin()
        try:
            result = await _drive(coroutine, call)
        except BaseException as error:
            calls.leave(call, error)
            raise
        calls.leave(call)
        return result

    return wrapper


def generator_function(function: Callable[..., Any], begin: Callable[[], Call]) -> Callable[..., Any]:
    """Wrap a function that makes generators. Closing early is no error.

    Args:
        function: Returns the generator.
        begin: Opens the call, or resumes it, when the first item is asked for.
    """

    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = function(*args, **kwargs)
        del args, kwargs
        call = begin()
        # suspend() and resume() cost more than all the rest of a step. What they come to for most calls is
        # written out here, with a token, which within one step is good and cheaper than reading the scope.
        plain = call.span is None and call.timer is None and call.site.hold is calls.HOLD_STEPS
        scope = calls.current_scope.get
        make_current, make_previous = calls.current_scope.set, calls.current_scope.reset
        send, append, clock = generator.send, call.marks.append, calls.clock
        item = thrown = token = None
        try:
            while True:
                try:
                    item = send(item) if thrown is None else generator.throw(thrown)
                finally:
                    thrown = None
                if token is not None and scope() is call:
                    call.pending = True
                    append(clock())
                    call.pending = False
                    make_previous(token)
                    token = None
                else:
                    token = _keep(token, call)
                    calls.suspend(call)
                try:
                    item = yield item
                except BaseException as error:  # noqa: BLE001 - goes into the generator, as it would without us
                    _outlast(call)
                    thrown, item = error, None
                if plain and call.inner is None:
                    token = make_current(call)
                    call.pending = True
                    append(clock())
                    call.pending = False
                else:
                    calls.resume(call)
        except StopIteration as stop:
            _keep(token, call)
            calls.leave(call)
            return stop.value
        except GeneratorExit:
            _keep(token, call)
            calls.leave(call)
            raise
        except BaseException as error:
            _keep(token, call)
            calls.leave(call, error)
            raise

    return wrapper


def _keep(token: Token[Any] | None, call: Call) -> Token[Any] | None:
    """Keep with the call what a token says was the scope before its step; the token has then served."""
    if token is not None:
        before = token.old_value
        call.previous = None if before is Token.MISSING else before
    return None


def async_generator_function(function: Callable[..., Any], begin: Callable[[], Call]) -> Callable[..., Any]:
    """Wrap a function that makes async generators. Closing early is no error.

    Args:
        function: Returns the async generator.
        begin: Opens the call, or resumes it, when the first item is asked for.
    """

    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        generator = function(*args, **kwargs)
        del args, kwargs
        call = begin()
        guard = _Guard(call)  # noqa: F841 - lives as long as this frame
        closing = False
        steps = [_first_step(generator)]
        try:
            while True:
                item = await _drive(steps.pop(), call)
                calls.suspend(call)
                try:
                    item = yield item
                except GeneratorExit as error:
                    closing = True
                    _outlast(call)
                    if generator.ag_frame is None:
                        calls.resume(call)
                        raise
                    steps = [generator.athrow(error)]
                except BaseException as error:  # noqa: BLE001 - goes into the generator, as it would without us
                    steps = [generator.athrow(error)]
                else:
                    steps = [generator.asend(item)]
                calls.resume(call)
        except StopAsyncIteration:
            calls.leave(call)
        except GeneratorExit as error:
            calls.leave(call, None if closing else error)
            raise
        except BaseException as error:
            calls.leave(call, error)
            raise

    return wrapper


def _first_step(generator: AsyncGenerator[Any, Any]) -> Any:
    """Ask for the first item such that the event loop gets to know the generator around this one alone.

    It closes all that it knows when it shuts down, in any order and at once.
    """
    hooks = sys.get_asyncgen_hooks()
    if hooks.firstiter is None and hooks.finalizer is None:
        return generator.__anext__()
    sys.set_asyncgen_hooks(None, _left_to_the_wrapper)
    try:
        return generator.__anext__()
    finally:
        sys.set_asyncgen_hooks(*hooks)


def _left_to_the_wrapper(_: Any) -> None:
    """Finalize an async generator whose wrapper has closed it, or could not either."""


class _left_if_interrupted:  # noqa: N801 - used like a function
    """Leave a call that an interrupt strikes where nobody else would."""

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call = call

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            calls.leave(self._call, error)


class _Guard:
    """Leaves a suspended call whose frame goes without having been closed.

    As that of an async generator does where its event loop has closed before it.
    """

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call: Call | None = call

    def __del__(self) -> None:
        call = self._call
        if call is not None and not call.closed:
            _outlast(call)
            calls.resume(call)
            calls.leave(call, GeneratorExit())


class _Handover(_Guard):
    """What a function returned, and the call that goes on with it from the first step."""

    __slots__ = ("_result",)

    def __init__(self, result: Any, call: Call) -> None:
        super().__init__(call)
        self._result = result

    def take(self) -> Any:
        return self._result

    def begin(self) -> Call:
        call, self._call = self._call, None
        assert call is not None  # noqa: S101 - the first step comes once
        with _left_if_interrupted(call):
            calls.resume(call)
        return call


def continue_later(result: Any, call: Call) -> Any:
    """Return ``result`` such that the call that made it goes on while it runs.

    Args:
        result: A coroutine, generator or async generator object.
        call: The open call whose function returned it.
    """
    with _left_if_interrupted(call):
        calls.suspend(call)
    handover = _Handover(result, call)
    if isinstance(result, types.CoroutineType):
        made = coroutine_function(handover.take, handover.begin)()
    elif isinstance(result, types.GeneratorType):
        make = generator_function(handover.take, handover.begin)
        made = like_generator(make, result.gi_code)()
    else:
        made = async_generator_function(handover.take, handover.begin)()
    # Warnings and the names of tasks tell of the user's function.
    made.__name__, made.__qualname__ = result.__name__, result.__qualname__
    return made


def like_generator(wrapper: Callable[..., Any], code: types.CodeType) -> Callable[..., Any]:
    """Return the wrapper of a generator function, its results awaitable if those of ``code`` are."""
    return types.coroutine(wrapper) if code.co_flags & inspect.CO_ITERABLE_COROUTINE else wrapper
