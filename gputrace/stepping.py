"""Runs generators and coroutines step by step, so that a call holds only while its own code runs.

Each driver takes a call that is open and on this thread, and leaves it. The
scope of the call is current for one step at a time: both the setting and the
restoring happen in whichever context the step runs in, so that resuming or
closing in another task is as good as in the first.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from gputrace import call as calls

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator

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
            waited = awaited.send(value) if thrown is None else awaited.throw(thrown)
        except StopIteration as stop:
            return stop.value
        finally:
            thrown = None
        calls.suspend(call)
        try:
            value = yield waited
        except GeneratorExit:
            calls.resume(call)
            awaited.close()
            raise
        except BaseException as error:  # noqa: BLE001 - goes into the coroutine, as it would without us
            thrown = error
        calls.resume(call)


async def run_coroutine(coroutine: Coroutine[Any, Any, Any], call: Call) -> Any:
    """Await a coroutine to its end and leave the call."""
    try:
        result = await _drive(coroutine, call)
    except BaseException as error:
        calls.leave(call, error)
        raise
    calls.leave(call)
    return result


def run_generator(generator: Generator[Any, Any, Any], call: Call) -> Generator[Any, Any, Any]:
    """Delegate to a generator (PEP 380) to its end and leave the call.

    Closing early is no error.
    """
    try:
        item = next(generator)
        while True:
            calls.suspend(call)
            try:
                sent = yield item
            except GeneratorExit:
                calls.resume(call)
                generator.close()
                calls.leave(call)
                raise
            except BaseException as error:  # noqa: BLE001 - goes into the generator, as it would without us
                calls.resume(call)
                item = generator.throw(error)
            else:
                calls.resume(call)
                item = generator.send(sent)
    except StopIteration as stop:
        calls.leave(call)
        return stop.value
    except GeneratorExit as error:
        if not call.closed:
            calls.leave(call, error)
        raise
    except BaseException as error:
        calls.leave(call, error)
        raise


def async_generator_function(function: Callable[..., Any], begin: Callable[[], Call]) -> Callable[..., Any]:
    """Wrap a function that makes async generators: delegates (PEP 525) to their end and leaves the call.

    Closing early is no error.

    Args:
        function: Returns the async generator.
        begin: Opens the call, or resumes it, when the first item is asked for.
    """

    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        generator = function(*args, **kwargs)
        call = begin()
        step: Any = generator.__anext__()
        try:
            while True:
                item = await _drive(step, call)
                calls.suspend(call)
                try:
                    sent = yield item
                except GeneratorExit:
                    calls.resume(call)
                    await _drive(generator.aclose(), call)
                    calls.leave(call)
                    raise
                except BaseException as error:  # noqa: BLE001 - goes into the generator, as it would without us
                    calls.resume(call)
                    step = generator.athrow(error)
                else:
                    calls.resume(call)
                    step = generator.asend(sent)
        except StopAsyncIteration:
            calls.leave(call)
        except GeneratorExit as error:
            if not call.closed:
                calls.leave(call, error)
            raise
        except BaseException as error:
            calls.leave(call, error)
            raise

    return wrapper


async def _continue_coroutine(coroutine: Coroutine[Any, Any, Any], call: Call) -> Any:
    calls.resume(call)
    return await run_coroutine(coroutine, call)


def _continue_generator(generator: Generator[Any, Any, Any], call: Call) -> Generator[Any, Any, Any]:
    calls.resume(call)
    return (yield from run_generator(generator, call))


def continue_later(result: Any, call: Call) -> Any:
    """Return ``result`` such that the call that made it goes on while it runs.

    Args:
        result: A coroutine, generator or async generator object.
        call: The open call whose function returned it.
    """
    calls.suspend(call)
    if isinstance(result, types.CoroutineType):
        return _continue_coroutine(result, call)
    if isinstance(result, types.GeneratorType):
        return _continue_generator(result, call)
    return async_generator_function(lambda: result, lambda: _resumed(call))()


def _resumed(call: Call) -> Call:
    calls.resume(call)
    return call
