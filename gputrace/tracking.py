"""``track`` and ``span``: how user code says that a piece of work uses a device.

Wrappers refer to the rest of gputrace through modules, never through objects:
a decorated function that is pickled by value (Ray, multiprocessing) must not
drag a ContextVar, a lock or a tracer along.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from gputrace import call as calls
from gputrace import stepping
from gputrace.attribution import checked_fields, tolerated_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from gputrace.call import Call

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_SITE_ATTRIBUTE = "__gputrace_site__"


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
    decorator = _Decorator(
        operation,
        checked_fields(given, "track"),
        _checked_options(hold, devices, streams, weight, attributes),
    )
    return decorator if function is None else decorator(function)


def _checked_options(
    hold: str,
    devices: Any,
    streams: Sequence[Any] | None,
    weight: int,
    attributes: Mapping[str, Any] | None,
) -> dict[str, Any]:
    if hold not in calls.HOLDS:
        message = f"track: hold={hold!r} is not one of {', '.join(map(repr, calls.HOLDS))}"
        raise ValueError(message)
    if not isinstance(weight, int) or isinstance(weight, bool) or weight < 1:
        message = f"track: weight={weight!r} must be an int of at least 1"
        raise ValueError(message)
    return {"hold": hold, "devices": devices, "streams": streams, "weight": weight, "attributes": attributes}


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
            message = (
                f"track: {function!r} cannot be called; decorate a function, a method or an object with __call__"
            )
            raise TypeError(message)
        inner = getattr(function, _SITE_ATTRIBUTE, None)
        if inner is not None:
            return _wrapped(function.__wrapped__, self._around(inner))
        return _wrapped(function, self._site(_qualified_name(function)))

    def _decorate_class(self, cls: type[Any]) -> type[Any]:
        method = cls.__dict__.get("__call__")
        if method is None:
            message = (
                f"track: class {cls.__qualname__} defines no __call__; decorate the method that does the work"
            )
            raise TypeError(message)
        named = _Decorator(self._operation or cls.__qualname__, self._fields, self._options)
        cls.__call__ = named(method)
        return cls

    def _site(self, name: str) -> calls.Site:
        return calls.Site(self._operation or name, self._fields, code_function=name, **self._options)

    def _around(self, inner: calls.Site) -> calls.Site:
        """Merge with the decorator that is there already: one call, the inner one's words win."""
        site = calls.Site(
            inner.operation if inner.operation != inner.code_function else self._operation or inner.operation,
            {**self._fields, **inner.overrides},
            code_function=inner.code_function,
            **{
                "hold": inner.hold,
                "devices": inner.devices or self._options["devices"],
                "streams": inner.streams or self._options["streams"],
                "weight": max(inner.weight, self._options["weight"]),
                "attributes": {**(self._options["attributes"] or {}), **inner.attributes},
            },
        )
        if inner.hold == calls.HOLD_STEPS:
            site.hold = self._options["hold"]
        return site


def _qualified_name(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__qualname__


def _wrapped(function: Any, site: calls.Site) -> Any:
    subject = function
    while isinstance(subject, functools.partial):
        subject = subject.func
    if not inspect.isroutine(subject):
        subject = type(subject).__call__
    if inspect.iscoroutinefunction(subject):
        wrapper = _coroutine_wrapper(function, site)
    elif inspect.isasyncgenfunction(subject):
        wrapper = _async_generator_wrapper(function, site)
    elif inspect.isgeneratorfunction(subject):
        wrapper = _generator_wrapper(function, site)
    else:
        wrapper = _function_wrapper(function, site)
    setattr(wrapper, _SITE_ATTRIBUTE, site)
    return wrapper


def _function_wrapper(function: Callable[..., Any], site: calls.Site) -> Any:
    @functools.wraps(function)
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


def _coroutine_wrapper(function: Callable[..., Any], site: calls.Site) -> Any:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        coroutine = function(*args, **kwargs)
        return await stepping.run_coroutine(coroutine, calls.enter(site))

    return wrapper


def _generator_wrapper(function: Callable[..., Any], site: calls.Site) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        return (yield from stepping.run_generator(generator, calls.enter(site)))

    return wrapper


def _async_generator_wrapper(function: Callable[..., Any], site: calls.Site) -> Any:
    wrapper = stepping.async_generator_function(function, functools.partial(calls.enter, site))
    return functools.update_wrapper(wrapper, function)


_BLOCK_SITES_LIMIT = 1024
_block_sites: dict[tuple[Any, ...], calls.Site] = {}


class span:  # noqa: N801 - used like a function
    """Track a block of code; the same arguments as :func:`track`, the operation first.

    A block cannot see its own suspensions: with ``await`` inside, it holds the
    device throughout, unless it stands in a tracked coroutine or generator,
    whose suspensions then count for the block too. ``hold="none"`` makes a
    container that only sums what is tracked in it.

    Args:
        operation: Name of the work.
        feature: Product feature that is billed; else that of the enclosing scope.
        model: Model that does the work.
        variant: Variant of the model.
        stage: Stage of a cascade or pipeline.
        tenant: Customer that is billed.
        hold: ``steps``, ``call`` or ``none``.
        devices: Devices that the block uses; the current one by default.
        streams: Side streams that are timed as well as the current one.
        weight: Share of a contended device that an outermost call is charged, an int >= 1.
        attributes: More attributes for the span; never on metrics.

    Raises:
        ValueError: An argument cannot be used; names it.
    """

    __slots__ = ("_calls", "_site")

    def __init__(  # noqa: PLR0913 - as track()
        self,
        operation: str,
        *,
        feature: str | None = None,
        model: str | None = None,
        variant: str | None = None,
        stage: str | None = None,
        tenant: str | None = None,
        hold: str = calls.HOLD_STEPS,
        devices: Any = None,
        streams: Sequence[Any] | None = None,
        weight: int = 1,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        key = (operation, feature, model, variant, stage, tenant, hold, weight)
        plain = devices is None and streams is None and attributes is None
        site = _block_sites.get(key) if plain else None
        if site is None:
            given = {"feature": feature, "tenant": tenant, "model": model, "variant": variant, "stage": stage}
            options = _checked_options(hold, devices, streams, weight, attributes)
            site = calls.Site(str(operation), tolerated_fields(given, "span"), **options)
            if plain:
                if len(_block_sites) >= _BLOCK_SITES_LIMIT:
                    _block_sites.clear()
                _block_sites[key] = site
        self._site = site
        self._calls: list[Call] = []

    def __enter__(self) -> Call:
        call = calls.enter(self._site)
        self._calls.append(call)
        return call

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        calls.leave(self._calls.pop(), error)
