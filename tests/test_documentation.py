"""The documentation works as written: its commands run, its Python runs.

A document is one session: its ```bash and ```python blocks run from top to bottom in one temporary folder, so
that a command may read what a block above wrote. On the line above a block may stand

    <!-- not run: REASON -->      the block is left alone
    <!-- needs: NAME, NAME -->    as the marker `requires` of tests/conftest.py
    <!-- continued -->            a Python block that begins with what the one above did
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if path.exists()]
# Folders that commands name from the root of the checkout.
LINKED = ("examples", "grafana")
# A line that begins with `make` is not run here: CI runs its target, or it stands here with the reason.
NOT_IN_CI = {
    "bench": "judges nothing, and timings of a shared machine would mislead",
    "clean": "would remove the environment that runs this",
    "constraints": "writes the pins anew",
    "format": "changes files; `make lint` judges them",
    "gpu-check": "needs a GPU; without one tests/benchmarks/ runs it and expects the failure",
    "gpu-check-wheels": "downloads what a machine with a GPU and without network lacks",
    "dashboards": "writes what a test compares with",
    "serve-check": "installs model servers, which pin packages of their own",
    "sglang-check": "needs SGLang: 8 GB and ten minutes",
    "vllm-check": "needs vLLM: 3 GB and ten minutes",
    "mutants": "takes long: run for a change of what it breaks",
    "stack": "runs until it is interrupted",
}
COMMENT = re.compile(r"<!-- (not run|needs|continued)(?:: *(.*\S))? *-->")


class Block(NamedTuple):
    line: int
    language: str
    code: str
    comment: str | None
    text: str


def blocks(document: str) -> Iterator[Block]:
    """The fenced blocks of a Markdown text, each with the comment on the line above it."""
    lines = document.splitlines()
    fence = re.compile(r"(`{3,})(\w*)")
    start = 0
    while start < len(lines):
        opened = fence.match(lines[start])
        if opened is None:
            start += 1
            continue
        end = lines.index(opened[1], start + 1)
        comment = COMMENT.fullmatch(lines[start - 1].strip()) if start else None
        kind, text = comment.groups() if comment else (None, None)
        yield Block(start + 1, opened[2], "\n".join(lines[start + 1 : end]) + "\n", kind, text or "")
        start = end + 1


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def targets_of(commands: str) -> set[str]:
    """The targets of `make TARGET … NAME=value` lines."""
    lines = re.findall(r"^\s*make +([^#\n]+)", commands, re.MULTILINE)
    return {word for line in lines for word in re.findall(r"(?<!\S)[a-z][a-z-]*(?!\S)", line)}


def run(*command: str | Path, folder: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def run_block(block: Block, above: str, folder: Path) -> str:
    """Run one block; `above` is what a continued one begins with. Returns the whole program."""
    if block.language == "bash":
        program = re.sub(r"^\s*make .*$", "", block.code, flags=re.MULTILINE)
        run("bash", "-euo", "pipefail", "-c", program, folder=folder)
        return above
    program = above + block.code if block.comment == "continued" else block.code
    script = folder / f"line_{block.line}.py"
    script.write_text(program)
    run(sys.executable, script, folder=folder)
    return program


@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_shows_runs(path: Path, tmp_path: Path, needs: Callable[..., None]) -> None:
    for name in LINKED:
        (tmp_path / name).symlink_to(ROOT / name)
    above = ""
    for block in blocks(path.read_text()):
        if block.language not in {"bash", "python"} or block.comment == "not run":
            continue
        try:
            needs(*re.findall(r"[\w-]+", block.text if block.comment == "needs" else ""))
        except pytest.skip.Exception:
            continue
        try:
            above = run_block(block, above, tmp_path)
        except AssertionError as error:
            pytest.fail(f"{path.name}:{block.line}: {error}", pytrace=False)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_blocks_are_run_or_say_why_not(path: Path) -> None:
    """Another name for the shell would escape the test above, and so would a reason left out."""
    for block in blocks(path.read_text()):
        where = f"{path.name}:{block.line}"
        assert block.language not in {"sh", "shell", "console", "py", "python3"}, (
            f"{where}: say bash or python"
        )
        assert block.comment != "not run" or block.text, f"{where}: not run, and no reason"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_in_documents_are_run_by_ci(path: Path) -> None:
    shown = {
        target
        for block in blocks(path.read_text())
        if block.language == "bash"
        for target in targets_of(block.code)
    }
    assert shown <= make_targets()
    assert shown <= targets_of((ROOT / ".ci" / "run").read_text()) | set(NOT_IN_CI)


def test_a_block_is_found_with_its_comment() -> None:
    document = (
        "text\n<!-- not run: needs a cluster -->\n```bash\nmake demo TORCH=cpu\n```\n```python\n1 + 1\n```\n"
    )
    first, second = blocks(document)
    assert first == Block(3, "bash", "make demo TORCH=cpu\n", "not run", "needs a cluster")
    assert second == Block(6, "python", "1 + 1\n", None, "")
    assert targets_of(first.code) == {"demo"}


def test_a_failing_block_is_seen(tmp_path: Path) -> None:
    for language, code in (("bash", "make nothing\nfalse | true\n"), ("python", "raise SystemExit(3)\n")):
        with pytest.raises(AssertionError):
            run_block(Block(1, language, code, None, ""), "", tmp_path)
