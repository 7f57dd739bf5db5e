"""The list of mutations keeps up with the code: `make mutants` takes an hour, and would say so too late."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import mutants

TESTS = Path(__file__).resolve().parent


@pytest.fixture
def mutations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    # They are read by a script, beside which they lie.
    monkeypatch.syspath_prepend(str(TESTS))
    return mutants.mutations()


def test_each_finds_its_text_once(mutations: list[Any]) -> None:
    assert mutants.misplaced(mutations) == []


def test_each_names_tests_that_exist(mutations: list[Any]) -> None:
    known: dict[str, set[str]] = {}
    missing = []
    for one in mutations:
        for test in one.test.split():
            file, _, name = test.partition("::")
            if file not in known:
                tree = ast.parse((TESTS.parent / file).read_text())
                named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
                known[file] = {node.name for node in ast.walk(tree) if isinstance(node, named)}
            parts = name.partition("[")[0].split("::") if name else []
            missing += [f"{one.name}: {test}" for part in parts if part not in known[file]]
    assert missing == []


def test_names_differ(mutations: list[Any]) -> None:
    names = Counter(one.name for one in mutations)
    assert [name for name, count in names.items() if count > 1] == []


def test_each_changes_something(mutations: list[Any]) -> None:
    assert [one.name for one in mutations if one.old == one.new] == []
