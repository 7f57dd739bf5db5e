"""Breaks our own code on purpose, one way at a time: a test must notice each.

    python tests/mutants.py                 all of them
    python tests/mutants.py --sample 12     evenly chosen
    python tests/mutants.py "row 1" hold    those whose names contain one of these

Copies the tree to a temporary folder, checks that the named tests pass there, applies each mutation of
tests/mutations/ in turn and runs the tests that it names. Fails if a mutant survives, or if the text that
a mutation replaces is not found exactly once: then the code has moved on, and the mutation must follow.
"""

# ruff: noqa: T201 - a script that prints

from __future__ import annotations

import argparse
import concurrent.futures
import importlib
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mutations import Mutation

ROOT = Path(__file__).resolve().parent.parent
#: Where the folders of the repository lie once they are installed.
INSTALLED = {
    "gputrace": "gputrace",
    "exporters": "gputrace/exporters",
    "grafana": "gputrace/grafana",
    "integrations": "gputrace/integrations",
}
TESTS_FAILED = 1


class Verdict(NamedTuple):
    mutation: Mutation
    killed: bool
    seconds: float
    output: str


def mutations() -> list[Mutation]:
    folder = ROOT / "tests" / "mutations"
    names = sorted(path.stem for path in folder.glob("[a-z]*.py"))
    return [one for name in names for one in importlib.import_module(f"mutations.{name}").MUTATIONS]


def chosen(everything: list[Mutation], parts: Sequence[str], sample: int | None) -> list[Mutation]:
    named = [one for one in everything if not parts or any(part in one.name for part in parts)]
    if sample is None or sample >= len(named):
        return named
    return [named[number * len(named) // sample] for number in range(sample)]


def misplaced(wanted: list[Mutation]) -> list[str]:
    """The mutations whose text is not there exactly once."""
    found = [(one, (ROOT / one.file).read_text().count(one.old)) for one in wanted]
    return [
        f"{one.name}: its text is found {count} times in {one.file}" for one, count in found if count != 1
    ]


def copied_to(folder: Path) -> Path:
    """A copy of the tree, its packages laid out as installed so that they win over an editable install."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for source, target in INSTALLED.items():
        shutil.copytree(ROOT / source, folder / target, ignore=ignored)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def run_tests(folder: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(folder)}
    return subprocess.run(
        [*command, "--timeout=30", *tests],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def judged(folder: Path, mutation: Mutation) -> Verdict:
    path = folder / INSTALLED[mutation.file.partition("/")[0]] / mutation.file.partition("/")[2]
    original = path.read_text()
    began = time.monotonic()
    try:
        path.write_text(original.replace(mutation.old, mutation.new))
        finished = run_tests(folder, mutation.test.split())
    finally:
        path.write_text(original)
    # Anything else than failed tests, such as code that cannot be imported, proves nothing.
    killed = finished.returncode == TESTS_FAILED
    return Verdict(mutation, killed, time.monotonic() - began, finished.stdout + finished.stderr)


def verdicts(wanted: list[Mutation], jobs: int) -> Iterator[Verdict]:
    with tempfile.TemporaryDirectory(prefix="gputrace-mutants-") as temporary:
        folders: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(jobs):
            folders.put(copied_to(Path(temporary) / str(number)))

        def judge(mutation: Mutation) -> Verdict:
            folder = folders.get()
            try:
                return judged(folder, mutation)
            finally:
                folders.put(folder)

        intact = run_tests(
            Path(temporary) / "0", sorted({test for one in wanted for test in one.test.split()})
        )
        if intact.returncode:
            sys.exit(f"{intact.stdout}{intact.stderr}\nThe named tests must pass before anything is broken")
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(judge, wanted)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of the names of mutations")
    parser.add_argument("--sample", type=int, help="how many, evenly chosen")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    arguments = parser.parse_args()
    wanted = chosen(mutations(), arguments.names, arguments.sample)
    if not wanted:
        sys.exit("No mutation has such a name")
    if wrong := misplaced(wanted):
        sys.exit("\n".join(wrong))
    width = max(len(one.name) for one in wanted)
    survivors = []
    for verdict in verdicts(wanted, max(1, arguments.jobs)):
        mutation = verdict.mutation
        state = "killed" if verdict.killed else "SURVIVED"
        test = mutation.test.split()[0].rpartition("::")[2]
        print(f"{mutation.name:{width}}  {state:8}  {verdict.seconds:4.1f} s  {test}", flush=True)
        if not verdict.killed:
            survivors.append(mutation.name)
            print(verdict.output)
    print(f"{len(wanted)} mutants, {len(wanted) - len(survivors)} killed, {len(survivors)} survived")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
