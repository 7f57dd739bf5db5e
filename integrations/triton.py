"""Triton: each ``execute`` of a Python model is a batch of its requests, billed to what each of them says.

In ``model.py``, and where requests are made:

    from gputrace.integrations import triton

    @triton.instrument
    class TritonPythonModel: ...

    client.register_plugin(triton.ClientPlugin())
"""

from __future__ import annotations

import functools
import inspect
import json
from typing import TYPE_CHECKING, Any, overload

from opentelemetry import propagate

import gputrace
from gputrace import faults
from gputrace.integrations import triton_requests
from gputrace.integrations.triton_requests import Arrived

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Function = Callable[..., Any]
    Weigh = Callable[[Any], float]

#: What a server that unloads a model waits at most for exporters, s.
FLUSH_TIMEOUT_S = 1.8

_MODEL = "_gputrace_model"
_DONE = "__gputrace_original__"

_INITIALISING = faults.contained("read the configuration of a Triton model")
_OPENING = faults.contained("split a Triton batch among its requests")
_CLOSING = faults.contained("close the requests of a Triton batch")
_FLUSHING = faults.contained("flush when a Triton model is unloaded")
_SENDING = faults.contained("put baggage into a Triton request")


class _Model:
    """What the configuration says of a model.

    Attributes:
        name: Of the model.
        has_rows: Whether the first dimension of its inputs is rows of a batch.
        is_decoupled: Whether it answers through senders, and may go on after ``execute``.
        devices: Where Triton has put this instance; None without a GPU.
    """

    def __init__(self, given: dict[str, str]) -> None:
        configuration = json.loads(given["model_config"])
        self.name = given["model_name"]
        self.has_rows = int(configuration.get("max_batch_size", 0)) > 0
        self.is_decoupled = bool(configuration.get("model_transaction_policy", {}).get("decoupled", False))
        on_gpu = given.get("model_instance_kind") == "GPU"
        self.devices = [f"cuda:{given['model_instance_device_id']}"] if on_gpu else None


@overload
def instrument(model: type[Any], /) -> type[Any]: ...


@overload
def instrument(
    *, weight: Weigh | None = None, hold: str = "steps", variant: str | None = None
) -> Callable[[type[Any]], type[Any]]: ...


def instrument(
    model: Any = None, /, *, weight: Weigh | None = None, hold: str = "steps", variant: str | None = None
) -> Any:
    """Decorate a ``TritonPythonModel``, with or without arguments.

    Each request is a container, counted under the model's name; what ``execute`` holds is split among
    them. A model that is decoupled holds nothing by itself: track what it does with ``gputrace.span``.

    Args:
        model: The class.
        weight: Takes a request and returns its share; the rows of its first input by default.
        hold: ``none`` for a model that has others do the work (BLS), which run elsewhere.
        variant: Variant of the model.

    Returns:
        The same class.

    Raises:
        TypeError: It has no ``execute``.
    """
    if model is None:
        return functools.partial(_decorate, weight=weight, hold=hold, variant=variant)
    return _decorate(model, weight=weight, hold=hold, variant=variant)


def _decorate(model: type[Any], *, weight: Weigh | None, hold: str, variant: str | None) -> type[Any]:
    execute = getattr(model, "execute", None)
    if execute is None:
        raise TypeError(f"triton.instrument: {model!r} has no execute; decorate the TritonPythonModel")
    if hasattr(execute, _DONE):
        return model
    opening = functools.partial(_Execution, weight=weight, hold=hold, variant=variant)
    model.execute = _executing(execute, opening)
    model.initialize = _initialising(getattr(model, "initialize", None))
    model.finalize = _finalising(getattr(model, "finalize", None))
    return model


class _Execution:
    """One ``execute``: its requests, and the batch that they are."""

    def __init__(
        self, model: _Model | None, requests: Sequence[Any], *, weight: Weigh | None, hold: str, variant: Any
    ) -> None:
        name = "model" if model is None else model.name
        if model is not None and model.is_decoupled:
            hold = "none"
        has_rows = model is not None and model.has_rows
        self._arrived = [Arrived(name, request) for request in requests]
        self._batch = gputrace.batch(
            [one.request for one in self._arrived],
            [triton_requests.weight_of(request, weight, has_rows=has_rows) for request in requests],
            operation=f"execute {name}",
            model=name,
            variant=variant,
            hold=hold,
            devices=None if model is None else model.devices,
        )
        self._batch.__enter__()

    def end(self, responses: Any, error: BaseException | None = None) -> None:
        """Close the batch and its requests.

        Args:
            responses: What ``execute`` has returned, one for each request; None where it answers otherwise.
            error: What it raised.
        """
        self._batch.__exit__(None if error is None else type(error), error, None)
        answers = responses if isinstance(responses, (list, tuple)) else ()
        for position, arrived in enumerate(self._arrived):
            arrived.end(answers[position] if position < len(answers) else None, error)


def _executing(original: Function, opening: Callable[..., _Execution]) -> Function:
    def opened(self: Any, requests: Sequence[Any], hold: dict[str, str]) -> _Execution | None:
        with _OPENING:
            return opening(getattr(self, _MODEL, None), requests, **hold)
        return None

    def ended(execution: _Execution | None, responses: Any, error: BaseException | None = None) -> None:
        if execution is not None:
            with _CLOSING:
                execution.end(responses, error)

    if inspect.iscoroutinefunction(original):
        tracked = gputrace.track(original)

        @functools.wraps(original)
        async def execute(self: Any, requests: Sequence[Any]) -> Any:
            # Held while its own code runs, not while it waits for other models.
            execution = opened(self, requests, {"hold": "none"})
            try:
                responses = await tracked(self, requests)
            except BaseException as error:
                ended(execution, None, error)
                raise
            ended(execution, responses)
            return responses
    else:

        @functools.wraps(original)
        def execute(self: Any, requests: Sequence[Any]) -> Any:
            execution = opened(self, requests, {})
            try:
                responses = original(self, requests)
            except BaseException as error:
                ended(execution, None, error)
                raise
            ended(execution, responses)
            return responses

    setattr(execute, _DONE, original)
    return execute


def _initialising(original: Function | None) -> Function:
    def initialize(self: Any, args: dict[str, str]) -> Any:
        with _INITIALISING:
            setattr(self, _MODEL, _Model(args))
        return None if original is None else original(self, args)

    return initialize if original is None else functools.wraps(original)(initialize)


def _finalising(original: Function | None) -> Function:
    def finalize(self: Any) -> Any:
        result = None if original is None else original(self)
        # Triton ends the process of the model without what runs at an exit.
        with _FLUSHING:
            gputrace.flush(timeout=FLUSH_TIMEOUT_S)
        return result

    return finalize if original is None else functools.wraps(original)(finalize)


def carrier() -> dict[str, str]:
    """Return what tells a model whom a request is for: ``client.infer(…, parameters=triton.carrier())``.

    Needs no headers to be forwarded, and works where a plugin does not: for ``async_infer`` of the HTTP
    client, which calls its plugin outside of the caller's context, for ``/generate``, and for what a
    model asks of others, ``InferenceRequest(…, parameters=triton.carrier())``.
    """
    carried: dict[str, str] = {}
    with _SENDING:
        propagate.inject(carried)
        gputrace.inject(carried)
    return carried


class ClientPlugin:
    """Plugin of ``tritonclient``, HTTP and gRPC: puts what a request is billed to into its headers.

    The server forwards them where it is started with ``--http-header-forward-pattern`` and
    ``--grpc-header-forward-pattern``.
    """

    def __call__(self, request: Any) -> None:
        """Add to the headers of a request.

        Args:
            request: Of the client, with its ``headers``.
        """
        with _SENDING:
            if request.headers is None:
                request.headers = {}
            request.headers.update(carrier())
