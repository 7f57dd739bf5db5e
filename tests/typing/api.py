"""What type checkers make of the public API. Never run: mypy reads it, strictly."""

from __future__ import annotations

import functools
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from typing_extensions import assert_type

import gputrace

# --- functions of each kind keep their types, with and without arguments


@gputrace.track
def bare(text: str, *, size: int = 3) -> list[float]:
    return [float(size)] * len(text)


@gputrace.track(feature="search", model="minilm", hold="steps", weight=2, attributes={"rows": 3})
def configured(text: str, *, size: int = 3) -> list[float]:
    return [float(size)] * len(text)


assert_type(bare("a", size=4), list[float])
assert_type(configured("a"), list[float])
bare(1)  # type: ignore[arg-type]
bare("a", size="b")  # type: ignore[arg-type]
bare("a", length=4)  # type: ignore[call-arg]
configured()  # type: ignore[call-arg]


@gputrace.track
async def coroutine(text: str) -> bytes:
    return text.encode()


@gputrace.track(operation="embed")
async def configured_coroutine(text: str) -> bytes:
    return text.encode()


_ = assert_type(coroutine("a"), Coroutine[Any, Any, bytes])
_ = assert_type(configured_coroutine("a"), Coroutine[Any, Any, bytes])


@gputrace.track
def generator(n: int) -> Generator[int, str, float]:
    yield n
    return 0.5


@gputrace.track(stage="decode")
def iterator(n: int) -> Iterator[int]:
    yield n


@gputrace.track
async def async_generator(n: int) -> AsyncGenerator[int, str]:
    yield n


@gputrace.track(stage="decode")
async def async_iterator(n: int) -> AsyncIterator[int]:
    yield n


assert_type(generator(1), Generator[int, str, float])
assert_type(iterator(1), Iterator[int])
assert_type(async_generator(1), AsyncGenerator[int, str])
assert_type(async_iterator(1), AsyncIterator[int])


async def awaits() -> None:
    assert_type(await coroutine("a"), bytes)
    assert_type(await configured_coroutine("a"), bytes)
    assert_type([item async for item in async_iterator(1)], list[int])


# --- methods, in either order


class Model:
    @gputrace.track
    def method(self, x: int) -> str:
        return str(x)

    @gputrace.track(operation="method")
    def configured_method(self, x: int) -> str:
        return str(x)

    @gputrace.track
    async def async_method(self, x: int) -> str:
        return str(x)

    @gputrace.track
    @staticmethod
    def static_above(x: int) -> str:
        return str(x)

    @staticmethod
    @gputrace.track
    def static_below(x: int) -> str:
        return str(x)

    @gputrace.track(operation="static")
    @staticmethod
    def configured_static(x: int) -> str:
        return str(x)

    @gputrace.track
    @classmethod
    def class_above(cls, x: int) -> str:
        return cls.__name__ * x

    @classmethod
    @gputrace.track
    def class_below(cls, x: int) -> str:
        return cls.__name__ * x

    @gputrace.track(operation="class")
    @classmethod
    def configured_class(cls, x: int) -> str:
        return cls.__name__ * x


model = Model()
assert_type(model.method(1), str)
assert_type(model.configured_method(1), str)
__ = assert_type(model.async_method(1), Coroutine[Any, Any, str])
assert_type(model.static_above(1), str)
assert_type(model.static_below(1), str)
assert_type(model.configured_static(1), str)
assert_type(Model.static_above(1), str)
assert_type(model.class_above(1), str)
assert_type(model.class_below(1), str)
assert_type(Model.configured_class(1), str)
model.method("a")  # type: ignore[arg-type]
model.static_above("a")  # type: ignore[arg-type]
Model.class_above("a")  # type: ignore[arg-type]


# --- classes stay classes; partials and callable objects stay callable


@gputrace.track
class Embedder:
    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, text: str) -> list[float]:
        return [0.0] * self.size * len(text)


@gputrace.track(feature="search")
class Reranker(Embedder):
    def __call__(self, text: str) -> list[float]:
        return super().__call__(text)


assert_type(Embedder(3), Embedder)
assert_type(Embedder(3).size, int)
assert_type(Reranker(3)("a"), list[float])
assert_type(gputrace.track(Embedder(3))("a"), list[float])
assert_type(gputrace.track(model="minilm")(Embedder(3))("a"), list[float])
assert_type(gputrace.track(functools.partial(bare, size=4))("a"), list[float])


# --- under the decorators of contextlib


@contextmanager
@gputrace.track
def resource(name: str) -> Iterator[bytes]:
    yield name.encode()


@asynccontextmanager
@gputrace.track(hold="none")
async def async_resource(name: str) -> AsyncIterator[bytes]:
    yield name.encode()


async def uses_resources() -> None:
    with resource("a") as given:
        assert_type(given, bytes)
    async with async_resource("a") as async_given:
        assert_type(async_given, bytes)


# --- what cannot be said

gputrace.track(features="search")  # type: ignore[call-overload]
gputrace.track("search")  # type: ignore[call-overload]
gputrace.track(feature=1)  # type: ignore[call-overload]
gputrace.span()  # type: ignore[call-arg]
gputrace.span("rerank", "search")  # type: ignore[call-arg]

# --- blocks


def blocks() -> int:
    with gputrace.span(
        "rerank", feature="search", model="bge-large", hold="call", devices="cuda:1", weight=3
    ):
        pass
    with gputrace.attribute_to("search", tenant="acme", model="m", variant="fp16", stage="small"):
        pass
    with gputrace.attribute_to(feature="search"):
        # Neither swallows exceptions: what comes after a block that returns cannot be reached.
        return 1


gputrace.attribute_to("search", "acme")  # type: ignore[call-arg]

# --- the running scope

current = gputrace.current()
assert_type(current.feature, str)
assert_type(current.tenant, "str | None")
assert_type(current.call_id, "str | None")
current.set("search", tenant="acme")
current.feature = "search"  # type: ignore[misc]
current.add_units(tokens=812, minutes=0.5)
current.add_units(812)  # type: ignore[call-arg]

# --- outcomes

gputrace.outcome("ticket_solved")
gputrace.outcome("ticket_solved", 2, request_id=current.call_id, feature="search")
gputrace.outcome(value=2)  # type: ignore[call-arg]

# --- lifecycle

gputrace.configure(
    service_name="support-api",
    endpoint="http://localhost:4318",
    data_dir=Path("data"),
    metric_attributes=("tenant",),
    export_interval=5.0,
    features=("search", "answer"),
    models=["minilm"],
    trusted_baggage=("gputrace.feature",),
    trust=lambda scope: scope["client"] is not None,
    baggage_key="a-key-that-services-share",
    outcomes=("ticket_solved",),
)
gputrace.configure(trust=True)  # type: ignore[arg-type]
assert_type(gputrace.flush(timeout=1.0), bool)
gputrace.shutdown()

# --- a function that decorates functions can be written over it


def tracked(function: Callable[[int], str]) -> Callable[[int], str]:
    return gputrace.track(feature="search")(function)


# --- intervals that are told afterwards

gputrace.record_interval([gputrace.member()], "GPU-1", 1, 2, weights=[3.0], model="llm")
gputrace.record_interval([], 0, 1, 2)  # type: ignore[arg-type]

# --- cascades

answering = gputrace.Cascade("answer", stages=("small", "large"), threshold=0.8, audit_rate=lambda _: 0.1)
gputrace.Cascade("answer", threshold="0.8")  # type: ignore[arg-type]
with answering.request(feature="search") as asked:
    with asked.stage("small", input_size=3):
        pass
    assert_type(asked.escalate(0.5, audit=lambda: bare("a", size=4)), bool)
assert_type(asked.id, str)
assert_type(answering.wait_for_audits(timeout=1.0), bool)
gputrace.score(asked.id, 1.0, "accepted", stage="small", label_propensity=0.5)
gputrace.score(asked.id, "good")  # type: ignore[arg-type]
assert_type(gputrace.record_decision("answer", escalated=True, light_time=0.5), str)
gputrace.record_decision("answer")  # type: ignore[call-arg]

# --- across threads and services

assert_type(gputrace.carry(bare)("a", size=4), list[float])
gputrace.carry(bare)(1)  # type: ignore[arg-type]
gputrace.carry(3)  # type: ignore[arg-type]
assert_type(gputrace.carry(model.method)(1), str)
headers: dict[str, str] = {}
gputrace.inject(headers)
gputrace.inject(["baggage"])  # type: ignore[arg-type]
handler = logging.StreamHandler()
handler.addFilter(gputrace.LoggingFilter())
