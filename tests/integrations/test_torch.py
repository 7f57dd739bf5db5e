"""torch: the outermost callable is one call, whatever a compiler makes of it, and its graph stays whole."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import gputrace
from gputrace.attribution import current_scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.requires("torch")


class Graphs(list[Any]):
    """A backend of torch.compile that runs what it is given as it is, and keeps it."""

    def __call__(self, graph: Any, _: Any) -> Any:
        self.append(graph)
        return graph.forward


@pytest.fixture
def graphs() -> Iterator[Graphs]:
    import torch

    torch._dynamo.reset()
    yield Graphs()
    torch._dynamo.reset()


@pytest.fixture(scope="module")
def encoder() -> Callable[[], Any]:
    from tests.integrations import torch_models

    return torch_models.Encoder


@pytest.fixture
def row() -> Any:
    import torch

    return torch.ones(2, 4)


def calls(bench: Any) -> list[tuple[str, str | None, str, str]]:
    return [(one.operation, one.model, one.feature, one.status) for one in bench.settled()]


def test_each_call_of_a_module_is_one_call(bench: Any, encoder: Any, row: Any) -> None:
    module = encoder()
    module.during = lambda: bench.time.advance(10)
    assert gputrace.instrument(module, model="bge") is module
    gputrace.instrument(module, model="another")
    with gputrace.attribute_to(feature="search"):
        module(row)
    assert calls(bench) == [("Encoder", "bge", "search", "ok")]
    assert [one.charged_ns for one in bench.settled()] == [10]


def test_an_exception_ends_the_call(bench: Any, encoder: Any, row: Any) -> None:
    module = gputrace.instrument(encoder())
    with pytest.raises(ValueError, match="empty"):
        module(row, fail=True)
    assert [one.status for one in bench.settled()] == ["error"]
    assert current_scope.get() is None


def test_a_module_that_a_handler_calls_is_no_error(bench: Any, encoder: Any, row: Any) -> None:
    module = gputrace.instrument(encoder())
    try:
        {}[1]
    except KeyError:
        module(row)
    assert [one.status for one in bench.settled()] == ["ok"]


def test_an_interrupt_ends_the_call_when_the_next_begins(bench: Any, encoder: Any, row: Any) -> None:
    """torch calls no hook then."""
    module = gputrace.instrument(encoder())
    module.during = lambda: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        module(row)
    module.during = None
    module(row)
    assert [(one.status, one.call.parent) for one in bench.settled()] == [("error", None), ("ok", None)]


def test_a_hook_of_the_users_that_raises_first_leaves_nothing_open(
    bench: Any, encoder: Any, row: Any
) -> None:
    module = gputrace.instrument(encoder())

    def refuse(*_: Any) -> None:
        raise ValueError("empty")

    module.register_forward_pre_hook(refuse)
    with pytest.raises(ValueError, match="empty"):
        module(row)
    assert [one.status for one in bench.settled()] == ["error"]


def test_a_module_that_calls_itself_is_one_call(bench: Any, encoder: Any, row: Any) -> None:
    module = gputrace.instrument(encoder())
    again = [None]
    module.during = lambda: again and (again.pop(), module(row))
    module(row)
    assert [one.operation for one in bench.settled()] == ["Encoder"]


def test_a_module_within_another_is_inside_its_call(bench: Any, encoder: Any, row: Any) -> None:
    import torch

    inner = gputrace.instrument(encoder())
    outer = gputrace.instrument(torch.nn.Sequential(inner))
    outer(row)
    parents = {one.operation: one.call.parent for one in bench.settled()}
    assert parents["Sequential"] is None
    assert parents["Encoder"].site.operation == "Sequential"


def compiled_after(encoder: Any, **options: Any) -> Any:
    import torch

    return torch.compile(gputrace.instrument(encoder()), **options)


def compiled_before(encoder: Any, **options: Any) -> Any:
    import torch

    return gputrace.instrument(torch.compile(encoder(), **options))


def compiled_in_place_after(encoder: Any, **options: Any) -> Any:
    module = gputrace.instrument(encoder())
    module.compile(**options)
    return module


def compiled_in_place_before(encoder: Any, **options: Any) -> Any:
    module = encoder()
    module.compile(**options)
    return gputrace.instrument(module)


ORDERS = [compiled_after, compiled_before, compiled_in_place_after, compiled_in_place_before]


@pytest.mark.parametrize("made", ORDERS)
def test_compiled_it_is_one_graph_and_one_call_each_time(
    made: Any, bench: Any, encoder: Any, row: Any, graphs: Graphs
) -> None:
    module = made(encoder, backend=graphs, fullgraph=True)
    for _ in range(3):
        module(row)
    assert len(graphs) == 1
    assert [(one.operation, one.status) for one in bench.settled()] == [("Encoder", "ok")] * 3


@pytest.mark.parametrize("made", ORDERS)
def test_compiled_an_exception_ends_the_call(
    made: Any, bench: Any, encoder: Any, row: Any, graphs: Graphs
) -> None:
    module = made(encoder, backend=graphs)
    with pytest.raises(ValueError, match="empty"):
        module(row, fail=True)
    module(row)
    # Where the compiler gives up, torch runs the module's own hooks: they are part of the same call.
    assert [one.status for one in bench.settled()] == ["error", "ok"]


def test_inside_somebody_elses_graph_it_does_nothing(
    bench: Any, encoder: Any, row: Any, graphs: Graphs
) -> None:
    import torch

    inner = gputrace.instrument(encoder())
    torch.compile(torch.nn.Sequential(inner), backend=graphs, fullgraph=True)(row)
    assert len(graphs) == 1
    assert bench.settled() == []


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_compiled_function(order: str, bench: Any, row: Any, graphs: Graphs) -> None:
    import torch

    def scaled(rows: Any, by: int = 2) -> Any:
        return rows * by

    if order == "before":
        function = torch.compile(gputrace.instrument(scaled, model="m"), backend=graphs, fullgraph=True)
    else:
        function = gputrace.instrument(torch.compile(scaled, backend=graphs, fullgraph=True), model="m")
    assert gputrace.instrument(function) is function
    assert str(inspect.signature(function)) == "(rows: 'Any', by: 'int' = 2) -> 'Any'"
    function(row, by=3)
    function(row, by=3)
    assert len(graphs) == 1
    assert [(one.operation.rpartition(".")[2], one.model) for one in bench.settled()] == [("scaled", "m")] * 2


COMPILER_IN_HAND = """
import torch
from torch import compile as looked_up_before
import gputrace
from gputrace.testing import Recorder

with Recorder() as recorder:
    module = torch.compile(gputrace.instrument(torch.nn.Linear(2, 2)), backend="eager", fullgraph=True)

    @looked_up_before(backend="eager", fullgraph=True)
    @lambda function: gputrace.instrument(function, model="m")
    def doubled(rows):
        return 2 * rows

    for _ in range(2):
        module(doubled(torch.ones(1, 2)))
    print(*(one.operation for one in recorder.settled()))
"""


def test_a_compiler_that_was_looked_up_before(run_python: Any) -> None:
    """As in `torch.compile(gputrace.instrument(module))`, the first time, and in stacked decorators."""
    done = run_python(COMPILER_IN_HAND)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["doubled", "Linear"] * 2


def test_signature_copies_and_pickles(bench: Any, encoder: Any, row: Any) -> None:
    plain = inspect.signature(encoder().forward)
    module = gputrace.instrument(encoder(), model="bge")
    assert inspect.signature(module.forward) == plain
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):  # noqa: S301
        assert other.state_dict().keys() == encoder().state_dict().keys()
        other(row)
    assert calls(bench) == [("Encoder", "bge", "__none__", "ok")] * 2


def test_export_and_jit_trace_take_it(bench: Any, encoder: Any, row: Any) -> None:
    import torch

    module = gputrace.instrument(encoder())
    exported = torch.export.export(module, (row,)).module()
    assert torch.equal(exported(row), module(row))


def test_what_it_cannot_do_it_says() -> None:
    import torch

    with pytest.warns(DeprecationWarning, match="deprecated"):
        script = torch.jit.script(torch.nn.Linear(2, 2))
    with pytest.raises(TypeError, match="script module"):
        gputrace.instrument(script)
    with pytest.raises(TypeError, match="no ASGI application"):
        gputrace.instrument(torch.nn.Linear(2, 2), server_timing=True)
    with pytest.raises(TypeError, match="cannot be called"):
        gputrace.instrument(3, model="m")


def test_an_application_that_has_every_attribute_is_one() -> None:
    class Application:
        def __getattr__(self, name: str) -> Any:
            if name in {"user_middleware", "build_middleware_stack"}:
                raise AttributeError(name)
            return self

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...

    assert type(gputrace.instrument(Application())).__name__ == "RequestMiddleware"


def test_an_application_needs_no_torch() -> None:
    source = (
        "import sys, gputrace\nasync def app(scope, receive, send): ...\n"
        "gputrace.instrument(app)\nassert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", source], check=True)
