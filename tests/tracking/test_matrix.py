"""Each of the 34 rows of the behaviour matrix has a test, and a mutation that makes one fail."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROWS = {f"{number:02}" for number in range(1, 35)}


def found(pattern: str, folder: Path) -> set[str]:
    text = "\n".join(path.read_text() for path in folder.glob("*.py") if path != Path(__file__))
    return {row for rows in re.findall(pattern, text) for row in re.findall(r"\d\d", rows)}


def test_each_row_has_a_test() -> None:
    assert found(r"def test_rows?((?:_\d\d)+)_", TESTS) == ROWS


def test_each_row_has_a_mutation() -> None:
    assert found(r'"row (\d\d): ', TESTS.parent / "mutations") == ROWS
