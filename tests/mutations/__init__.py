"""Mutations of our own code, each with the tests that must notice; run by tests/mutants.py."""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    """One way to break the code.

    Attributes:
        name: What is wrong afterwards; begins with the row of the behaviour matrix or the rule.
        file: Path in the repository.
        old: Text that stands there exactly once.
        new: What takes its place.
        test: The test that must fail, as pytest names it; several are separated by spaces.
    """

    name: str
    file: str
    old: str
    new: str
    test: str
