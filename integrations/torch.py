"""torch: a module or a compiled function is one call, from the outside; nothing within it is looked at.

Inner modules are left alone on purpose: there are hundreds of them, and a hook that does anything breaks the
graph of a compiled model. Whatever of this a compiler traces, it sees do nothing.
"""

from __future__ import annotations

import functools
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import wrapt

import gputrace
from gputrace import faults

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_MARK = "_gputrace_named"
#: Apart from that of modules, all of whose attributes a compiler copies to a function of its own.
_FUNCTION_MARK = "_gputrace_named_function"

_ENTERING = faults.contained("open the call of a module")
_LEAVING = faults.contained("close the call of a module")
_COMPILING = faults.contained("track what was compiled")


@dataclass(frozen=True)
class Named:
    """What calls are called. Stays on a module, and is copied and pickled with it."""

    operation: str
    model: str | None


class _Open(NamedTuple):
    """A module that runs.

    Attributes:
        block: Its call; None where it runs inside itself already.
        frame: Where it was called: no longer executing once an interrupt has ended it.
        handled: The exception that the caller was handling already.
    """

    module: Any
    block: gputrace.span | None
    frame: FrameType
    handled: BaseException | None


class _Running(threading.local):
    """The modules that run on this thread, the innermost last."""

    def __init__(self) -> None:
        self.modules: list[_Open] = []


_running = _Running()


def add(target: Any, *, model: str | None = None) -> Any:
    """Track a module or a function; see ``gputrace.instrument``.

    Raises:
        TypeError: It cannot be called, or is a script module.
    """
    _watch_compilers()
    if not isinstance(target, torch.nn.Module):
        return _around(target, Named(_name(target), model))
    if _MARK in target.__dict__:
        return target
    if isinstance(target, torch.jit.ScriptModule):
        raise TypeError(
            f"instrument: {_name(target)} is a script module, which takes no hooks; decorate the function "
            "that calls it with gputrace.track"
        )
    # Past the module's own __setattr__: a compiled one hands attributes on to what it was made of.
    target.__dict__[_MARK] = Named(_name(target), model)
    target.register_forward_pre_hook(_entering, prepend=True)
    # Else it would not hear of exceptions, and the call would never end.
    target.register_forward_hook(_leaving, always_call=True)
    _cover_compiled_call(target)
    return target


def _name(target: Any) -> str:
    original = getattr(target, "_orig_mod", target)
    return getattr(original, "__qualname__", None) or type(original).__qualname__


# The two have names, and keep nothing: modules are copied and pickled with their hooks.
def _entering(module: torch.nn.Module, _: Any) -> None:
    # A compiler knows the answer and leaves out the rest, so that the graph stays whole.
    if not torch.compiler.is_compiling():
        with _ENTERING:
            _enter(module, sys._getframe(1))  # noqa: SLF001 - documented, if for CPython alone


def _leaving(module: torch.nn.Module, *_: Any) -> None:
    if not torch.compiler.is_compiling():
        with _LEAVING:
            # torch calls this while it handles what forward has raised.
            _leave(module, sys.exc_info()[1])


def _enter(module: torch.nn.Module, frame: FrameType) -> None:
    _end_interrupted()
    block = None
    if not any(_is_of(one.module, module) for one in _running.modules):
        named: Named = module.__dict__[_MARK]
        block = gputrace.span(named.operation, model=named.model)
        block.__enter__()
    _running.modules.append(_Open(module, block, frame, sys.exc_info()[1]))


def _is_of(running: Any, module: torch.nn.Module) -> bool:
    # What was compiled runs what it was made of where the compiler could not follow.
    return running is module or running.__dict__.get("_modules", {}).get("_orig_mod") is module


def _leave(module: torch.nn.Module, error: BaseException | None) -> None:
    modules = _running.modules
    if not any(one.module is module for one in modules):
        # Another hook raised before ours, or it was running when it was instrumented.
        return
    while True:
        last = modules.pop()
        _end(last, None if error is last.handled else error)
        if last.module is module:
            return


def _end_interrupted() -> None:
    """End what an interrupt has broken off: torch tells its hooks of exceptions only, not of those."""
    modules = _running.modules
    while modules:
        try:
            modules[-1].frame.clear()
        except RuntimeError:
            return  # It is still executing: it is what calls this module.
        _end(modules.pop(), KeyboardInterrupt())


def _end(opened: _Open, error: BaseException | None) -> None:
    if opened.block is not None:
        opened.block.__exit__(None if error is None else type(error), error, None)


def _around(function: Any, named: Named) -> Callable[..., Any]:
    if not callable(function):
        raise TypeError(f"instrument: {function!r} cannot be called; give a module or a function of torch's")
    if _FUNCTION_MARK in getattr(function, "__dict__", {}):
        return function  # type: ignore[no-any-return]
    tracked = gputrace.track(operation=named.operation, model=named.model)(function)
    called = _aside(function, tracked)
    setattr(called, _FUNCTION_MARK, named)
    return called


def _aside(function: Callable[..., Any], tracked: Callable[..., Any]) -> Callable[..., Any]:
    """Return the tracked function as one that a compiler takes for the function."""

    # Not its attributes: what torch.compile has left there would make it compile past this.
    @functools.wraps(function, updated=())
    def called(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        return tracked(*args, **kwargs)

    return called


def _cover_compiled_call(module: torch.nn.Module) -> None:
    """Track what ``module.compile()`` has put in the place of its call, hooks and all."""
    compiled = module._compiled_call_impl  # noqa: SLF001 - how torch keeps it
    if compiled is None or hasattr(compiled, _FUNCTION_MARK):
        return

    def tracked(*args: Any, **kwargs: Any) -> Any:
        with _ENTERING:
            _enter(module, sys._getframe())  # noqa: SLF001
        try:
            result = compiled(*args, **kwargs)
        except BaseException as error:
            with _LEAVING:
                _leave(module, error)
            raise
        with _LEAVING:
            _leave(module, None)
        return result

    called = _aside(compiled, tracked)
    setattr(called, _FUNCTION_MARK, module.__dict__[_MARK])
    module._compiled_call_impl = called  # noqa: SLF001


def _watch_compilers() -> None:
    """Let what is compiled of an instrumented module or function be tracked in its place.

    Not in the place of ``torch.compile``, which a program may have in hand already: in
    ``torch.compile(gputrace.instrument(module))`` it is looked up before this runs.
    """
    if hasattr(torch.nn.Module.compile, _MARK):
        return
    compile_module = torch.nn.Module.compile

    @functools.wraps(compile_module)
    def compiling_itself(self: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        compile_module(self, *args, **kwargs)
        if _MARK in self.__dict__:
            with _COMPILING:
                _cover_compiled_call(self)

    setattr(compiling_itself, _MARK, True)
    torch.nn.Module.compile = compiling_itself
    # Imported by the first compilation: it takes a second.
    wrapt.register_post_import_hook(_watch_dynamo, "torch._dynamo.eval_frame")


def _watch_dynamo(eval_frame: Any) -> None:
    compile_any = eval_frame._TorchDynamoContext.__call__  # noqa: SLF001 - what every way to compile goes through

    @functools.wraps(compile_any)
    def compiling(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = compile_any(self, *args, **kwargs)
        with _COMPILING:
            return _compiled(made)
        return made

    eval_frame._TorchDynamoContext.__call__ = compiling  # noqa: SLF001


def _compiled(made: Any) -> Any:
    attributes = getattr(made, "__dict__", {})
    if isinstance(made, torch.nn.Module):
        named = getattr(made, "_orig_mod", made).__dict__.get(_MARK)
        return made if named is None else add(made, model=named.model)
    original = attributes.get("_torchdynamo_orig_callable")
    named = getattr(original, "__dict__", {}).get(_FUNCTION_MARK)
    if not isinstance(named, Named):
        return made
    # It came along with the other attributes.
    attributes.pop(_FUNCTION_MARK, None)
    return _around(made, named)
