"""``track``: how user code says that a function uses a device.

Wrappers refer to the rest of gputrace through modules, never through objects:
a decorated function that is pickled by value (Ray, multiprocessing) must not
drag a ContextVar, a lock or a tracer along.
"""

from __future__ import annotations

import functools
import inspect
import types
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, overload

from gputrace import call as calls, stepping
from gputrace.attribution import checked_fields
from gputrace.call_site import checked_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_MARK = "__gputrace__"


@overload
def track(function: type[T], /) -> type[T]: ...


@overload
def track(function: classmethod[T, P, R], /) -> classmethod[T, P, R]: ...


@overload
def track(function: staticmethod[P, R], /) -> staticmethod[P, R]: ...


@overload
def track(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def track(
    *,
    feature: str | None = None,
    operation: str | None = None,
    model: str | None = None,
    variant: str | None = None,
    stage: str | None = None,
    tenant: str | None = None,
    hold: str = calls.HOLD_STEPS,
    devices: Any = None,
    streams: Sequence[Any] | None = None,
    weight: int = 1,
    attributes: Mapping[str, Any] | None = None,
) -> _Decorator: ...


def track(  # noqa: PLR0913 - what can be said about a call; all by name
    function: Any = None,
    /,
    *,
    feature: str | None = None,
    operation: str | None = None,
    model: str | None = None,
    variant: str | None = None,
    stage: str | None = None,
    tenant: str | None = None,
    hold: str = calls.HOLD_STEPS,
    devices: Any = None,
    streams: Sequence[Any] | None = None,
    weight: int = 1,
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """Decorate what uses a device, with or without arguments.

    Works on functions, coroutine functions, generators of both kinds, methods,
    static and class methods in either order, partials and callable objects. A
    class gets its ``__call__`` tracked and stays the same class. Arguments are
    never looked at.

    Args:
        function: What to decorate, when used as ``@track``.
        feature: Product feature that is billed; else that of the enclosing scope.
        operation: Name of the work; the qualified name by default.
        model: Model that does the work.
        variant: Variant of the model.
        stage: Stage of a cascade or pipeline.
        tenant: Customer that is billed.
        hold: ``steps`` holds the device while the function's own code runs, ``call`` from
            entry to end whatever it awaits, ``none`` makes a container that holds nothing.
        devices: Devices that the call uses, as torch names them; the current one by default.
        streams: Side streams that are timed as well as the current one.
        weight: Share of a contended device that an outermost call is charged, an int >= 1.
        attributes: More attributes for the span; never on metrics.

    Returns:
        What was given, tracked, with its signature, annotations and kind.

    Raises:
        ValueError: An argument cannot be used; names it.
        TypeError: ``function`` is nothing that can be called.
    """
    given = {"feature": feature, "tenant": tenant, "model": model, "variant": variant, "stage": stage}
    fields = checked_fields({**given, "operation": operation}, "track")
    operation = fields.pop("operation", None)
    options = checked_options("track", hold, devices, streams, weight, attributes)
    decorator = _Decorator(operation, fields, options)
    return decorator if function is None else decorator(function)


class _Decorator:
    """What ``track(...)`` returns: applies one set of options to a callable."""

    __slots__ = ("_fields", "_operation", "_options")

    def __init__(self, operation: str | None, fields: dict[str, str], options: dict[str, Any]) -> None:
        self._operation = operation
        self._fields = fields
        self._options = options

    @overload
    def __call__(self, function: type[T], /) -> type[T]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def __call__(self, function: classmethod[T, P, R], /) -> classmethod[T, P, R]: ...

    @overload
    def __call__(self, function: staticmethod[P, R], /) -> staticmethod[P, R]: ...

    def __call__(self, function: Any, /) -> Any:
        if isinstance(function, (staticmethod, classmethod)):
            return type(function)(self(function.__func__))
        if inspect.isclass(function):
            return self._decorate_class(function)
        if not callable(function):
            message = f"track: {function!r} cannot be called; decorate a function, method or callable object"
            raise TypeError(message)
        return self._applied(function, None)

    def _decorate_class(self, cls: type[Any]) -> type[Any]:
        method = cls.__dict__.get("__call__")
        if method is None:
            message = (
                f"track: class {cls.__qualname__} defines no __call__; decorate the method that does the work"
            )
            raise TypeError(message)
        if isinstance(method, (staticmethod, classmethod)):
            tracked: Any = type(method)(self._applied(method.__func__, cls.__qualname__))
        else:
            tracked = self._applied(method, cls.__qualname__)
        cls.__call__ = tracked
        return cls

    def _applied(self, function: Any, named: str | None) -> Any:
        tracked = _tracked(function)
        if tracked is not None:
            return _wrapped(tracked.function, self._around(tracked), tracked.operation or self._operation)
        name = _qualified_name(function)
        site = calls.Site(self._operation or named or name, self._fields, code_function=name, **self._options)
        return _wrapped(function, site, self._operation)

    def _around(self, tracked: _Tracked) -> calls.Site:
        """Merge with the decorator that is there already: one call, the inner one's words win."""
        inner, outer = tracked.site, self._options
        operation = tracked.operation or self._operation or inner.operation
        return calls.Site(
            operation,
            {**self._fields, **inner.overrides},
            code_function=inner.code_function,
            hold=outer["hold"] if inner.hold == calls.HOLD_STEPS else inner.hold,
            devices=outer["devices"] if inner.devices is None else inner.devices,
            streams=outer["streams"] if inner.streams is None else inner.streams,
            weight=max(inner.weight, outer["weight"]),
            attributes={**(outer["attributes"] or {}), **inner.attributes},
        )


class _Mark(NamedTuple):
    """What ``track`` leaves on a wrapper.

    Attributes:
        site: The site of its calls.
        operation: The operation, if one was given.
        code: The code of the wrapper: others copy attributes along, onto what is not ours.
    """

    site: calls.Site
    operation: str | None
    code: types.CodeType


class _Tracked(NamedTuple):
    """What a tracked callable is without ``track``, and what was said there."""

    function: Any
    site: calls.Site
    operation: str | None


def _tracked(function: Any) -> _Tracked | None:
    """Return what a callable is without ``track``, None where it is not tracked."""
    if isinstance(function, types.FunctionType):
        mark = function.__dict__.get(_MARK)
        if mark is None or mark.code != function.__code__:
            return None
        return _Tracked(function.__wrapped__, mark.site, mark.operation)  # type: ignore[attr-defined]
    if isinstance(function, functools.partial):
        inner = _tracked(function.func)
        if inner is None:
            return None
        return inner._replace(function=functools.partial(inner.function, *function.args, **function.keywords))
    owner = function.__self__ if isinstance(function, types.MethodType) else function
    method = function.__func__ if isinstance(function, types.MethodType) else type(function).__call__
    inner = _tracked(method) if isinstance(method, types.FunctionType) else None
    return None if inner is None else inner._replace(function=types.MethodType(inner.function, owner))


def _qualified_name(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__qualname__


def _wrapped(function: Any, site: calls.Site, operation: str | None) -> Any:
    subject = function
    while isinstance(subject, functools.partial):
        subject = subject.func
    if not inspect.isroutine(subject):
        subject = type(subject).__call__
    begin = functools.partial(calls.enter, site)
    if inspect.iscoroutinefunction(subject):
        wrapper = stepping.coroutine_function(function, begin)
    elif inspect.isasyncgenfunction(subject):
        wrapper = stepping.async_generator_function(function, begin)
    elif inspect.isgeneratorfunction(subject):
        wrapper = stepping.generator_function(function, begin)
        wrapper = stepping.like_generator(wrapper, subject.__code__)
    else:
        wrapper = _function_wrapper(function, site)
    functools.update_wrapper(wrapper, function)
    setattr(wrapper, _MARK, _Mark(site, operation, wrapper.__code__))
    return wrapper


def _function_wrapper(function: Callable[..., Any], site: calls.Site) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call = calls.enter(site)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            calls.leave(call, error)
            raise
        if type(result) in stepping.DEFERRED:
            return stepping.continue_later(result, call)
        calls.leave(call)
        return result

    return wrapper
