"""Rules of the design that no linter knows: who imports whom, where the SDK and a broad `except` may stand.

Imports inside functions count like any other. Those under `if TYPE_CHECKING:` do not: they name a type and
load nothing.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
# Folder in the repository -> name once installed (pyproject.toml, package-dir).
PACKAGES = {
    "gputrace": "gputrace",
    "exporters": "gputrace.exporters",
    "grafana": "gputrace.grafana",
    "integrations": "gputrace.integrations",
}
FACADE = "gputrace"

# From the ground up; a unit may import its own level and those below. A unit is a module, a package or a
# family of modules with one prefix: `ledger` is ledger.py and ledger_chains.py, `telemetry` is telemetry/.
LEVELS: tuple[frozenset[str], ...] = (
    frozenset({"carrying", "catalogue", "clocks", "faults", "identity", "ledger", "prices", "settings"}),
    frozenset({"devices"}),
    frozenset({"attribution", "baggage", "exporters", "grafana", "logs", "node", "telemetry"}),
    frozenset({"call"}),
    frozenset(
        {
            "accounts",
            "batching",
            "cardinality",
            "costs",
            "following",
            "hardware",
            "intervals",
            "outcomes",
            "requests",
            "settler",
            "staged",
            "stepping",
            "steps",
            "tracking",
        }
    ),
    frozenset({"cascades", "integrations", "lifecycle"}),
    frozenset({"__main__", "analysis", "cli", "demo", "simulate", "testing"}),
)
# Where the levels say too little: the only units, besides itself, that a unit may import.
ONLY = {
    **{unit: frozenset() for unit in LEVELS[0]},
    # As a user would; and they contain their own faults, and refuse settings that are not for this process.
    "integrations": frozenset({FACADE, "baggage", "faults", "settings"}),
    "analysis": frozenset({"catalogue", "ledger", "prices"}),
    # Made of names alone, so that a board can be written where no SDK runs.
    "grafana": frozenset({"catalogue"}),
}
# Public doors, which nothing beneath them may use.
MAY_USE_FACADE = frozenset({"integrations", "cli", "demo", "simulate", "testing"})
MAY_IMPORT_SDK = frozenset({"exporters", "telemetry"})
FOREIGN = {
    "ledger": ("opentelemetry", "threading", "time"),  # pure arithmetic: no clock, no thread
    "analysis": ("opentelemetry",),  # reads files, also where no SDK runs
    "grafana": ("opentelemetry",),
}
# Never waited for by a thread of the user's, or not for long. Elsewhere a signal handler that shuts down may
# run on the very thread that holds the lock.
PLAIN_LOCKS = {
    "gputrace.devices.nvml": "the sampler's; who stops it waits half a second",
    "gputrace.devices.nvml_library": "the binding's own, as it was made",
    "gputrace.telemetry.outlets": "of threads that export, which are left behind at a deadline",
    "gputrace.telemetry.providers": "the OpenTelemetry SDK's own, as they were made",
    "gputrace.integrations.ray_worker": "held before the worker's first task",
}
UNITS = frozenset().union(*LEVELS)
# Tests may hold long tables of cases.
MOST_LINES = {**dict.fromkeys((*PACKAGES, "benchmarks", "examples"), 400), "tests": 600}
SAYS_NOTHING = re.compile(r"(^|_)(utils?|helpers?|common|managers?|misc)$")


class Import(NamedTuple):
    where: str
    importer: str
    imported: str


def sources() -> dict[str, Path]:
    found = {}
    for folder, package in PACKAGES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


SOURCES = sources()
TREES = {module: ast.parse(path.read_text()) for module, path in SOURCES.items()}


def unit_of(module: str) -> str | None:
    """The unit that a module of ours belongs to; the façade is its own; None for one that no level names."""
    if module == FACADE:
        return FACADE
    name = module.split(".")[1]
    return next((unit for unit in UNITS if name == unit or name.startswith(f"{unit}_")), None)


def is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def running_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs, which the body of `if TYPE_CHECKING:` does not."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and is_type_checking(child.test):
            for other in child.orelse:
                yield other
                yield from running_nodes(other)
        else:
            yield child
            yield from running_nodes(child)


def imports_of(module: str, tree: ast.AST) -> Iterator[Import]:
    for node in running_nodes(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: relative import"
            base = node.module or ""
            names = [target_of(base, alias.name) for alias in node.names]
        else:
            continue
        for name in names:
            yield Import(f"{module}:{node.lineno}", module, name)


def target_of(base: str, name: str) -> str:
    """`from gputrace import ledger` imports the module gputrace.ledger, `… import track` the façade."""
    inner = f"{base}.{name}"
    is_module = inner in SOURCES or (base == FACADE and unit_of(inner) is not None)
    return inner if is_module or not base.startswith(FACADE) else base


IMPORTS = [one for module, tree in TREES.items() for one in imports_of(module, tree)]
OURS = [one for one in IMPORTS if one.imported.split(".")[0] == FACADE]


def level_of(unit: str) -> int:
    return next(number for number, level in enumerate(LEVELS) if unit in level)


def allowed(importer: str, imported: str) -> bool:
    if FACADE in {importer, imported}:
        return importer == FACADE or importer in MAY_USE_FACADE
    if importer in ONLY:
        return imported in ONLY[importer]
    return level_of(imported) <= level_of(importer)


def test_every_module_belongs_to_a_level() -> None:
    homeless = [module for module in SOURCES if unit_of(module) is None]
    assert homeless == [], "say in LEVELS where they belong"


def test_imports_go_downwards() -> None:
    wrong = []
    for one in OURS:
        importer, imported = unit_of(one.importer), unit_of(one.imported)
        known = importer is not None and imported is not None
        if known and importer != imported and not allowed(importer, imported):
            wrong.append(f"{one.where} imports {one.imported}")
    assert wrong == []


def circle(edges: dict[str, set[str]]) -> list[str]:
    """Some circle in the graph, or an empty list."""
    done: set[str] = set()

    def walk(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for following in sorted(edges.get(node, ())):
            if found := walk(following, [*path, node]):
                return found
        done.add(node)
        return []

    return next((found for node in sorted(edges) if (found := walk(node, []))), [])


def test_circle_finds_circles() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle({"a": {"b", "c"}, "b": {"c"}}) == []


@pytest.mark.parametrize("grain", ["module", "unit"])
def test_no_circles(grain: str) -> None:
    edges: dict[str, set[str]] = {}
    for one in OURS:
        # The façade names what lies below, and integrations use it as users do: a circle by design.
        if FACADE in {one.importer, one.imported}:
            continue
        ends = (one.importer, one.imported)
        importer, imported = ends if grain == "module" else map(unit_of, ends)
        if importer and imported and (grain == "module" or importer != imported):
            edges.setdefault(importer, set()).add(imported)
    assert circle(edges) == []


def test_only_telemetry_and_exporters_import_the_opentelemetry_sdk() -> None:
    wrong = [
        f"{one.where} imports {one.imported}"
        for one in IMPORTS
        if re.match(r"opentelemetry\.sdk\b", one.imported) and unit_of(one.importer) not in MAY_IMPORT_SDK
    ]
    assert wrong == []


def test_pure_units_stay_pure() -> None:
    wrong = [
        f"{one.where} imports {one.imported}"
        for one in IMPORTS
        if one.imported.split(".")[0] in FOREIGN.get(unit_of(one.importer) or "", ())
    ]
    assert wrong == []


def is_broad(caught: ast.expr | None) -> bool:
    if isinstance(caught, ast.Tuple):
        return any(is_broad(one) for one in caught.elts)
    return caught is None or ast.unparse(caught).rpartition(".")[2] in {"Exception", "BaseException"}


def hands_on(node: ast.AST, error: str | None) -> bool:
    """Raises, or keeps the error itself to raise it elsewhere: in a generator, in another thread."""
    if isinstance(node, ast.Assign):
        kept = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        return any(isinstance(value, ast.Name) and value.id == error for value in kept)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        given = [argument.id for argument in node.args if isinstance(argument, ast.Name)]
        return node.func.attr in {"throw", "athrow", "set_exception"} and error in given
    return isinstance(node, ast.Raise)


def swallows(node: ast.AST) -> bool:
    if isinstance(node, ast.ExceptHandler):
        return is_broad(node.type) and not any(hands_on(inner, node.name) for inner in ast.walk(node))
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "suppress":
        return any(is_broad(caught) for caught in node.args)
    return False


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("try: f()\nexcept Exception: pass", True),
        ("try: f()\nexcept (ValueError, BaseException): pass", True),
        ("try: f()\nexcept: pass", True),
        ("with contextlib.suppress(Exception): f()", True),
        ("try: f()\nexcept Exception:\n    g()\n    raise", False),
        ("try: f()\nexcept BaseException as error:\n    self.error = error", False),
        ("try: f()\nexcept BaseException as error:\n    thrown, item = error, None", False),
        ("try: f()\nexcept BaseException as error:\n    generator.throw(error)", False),
        ("try: f()\nexcept Exception as error:\n    message = str(error)", True),
        ("try: f()\nexcept ValueError: pass", False),
    ],
)
def test_swallows_knows_a_broad_except(code: str, expected: bool) -> None:
    assert any(map(swallows, ast.walk(ast.parse(code)))) is expected


def test_broad_except_stands_in_the_fault_helper_alone() -> None:
    wrong = [
        f"{module}:{node.lineno}"
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if swallows(node) and unit_of(module) != "faults"
    ]
    assert wrong == []


def test_a_signal_handler_meets_only_locks_that_its_thread_may_take_twice() -> None:
    plain = {
        module
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Lock"
    }
    # A program of our own and the stand-in of a driver are nobody else's process.
    ours = {module for module in plain if unit_of(module) != "demo" and "virtual" not in module}
    assert ours == set(PLAIN_LOCKS)


def test_names_say_something() -> None:
    assert [module for module in SOURCES if SAYS_NOTHING.search(module.rpartition(".")[2])] == []


def test_files_stay_short() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for folder, most in MOST_LINES.items()
        for path in (ROOT / folder).rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > most
    }
    assert long == {}
