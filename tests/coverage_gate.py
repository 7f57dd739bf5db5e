"""Holds the branches alone to the threshold that `coverage report` holds lines and branches to together.

Run by `make test` after `coverage combine`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import coverage


def main() -> int:
    measured = coverage.Coverage()
    measured.load()
    least = float(measured.get_option("report:fail_under") or 0)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        measured.json_report(outfile=str(report))
        totals = json.loads(report.read_text())["totals"]
    branches, covered = totals["num_branches"], totals["covered_branches"]
    share = 100 * covered / branches if branches else 100.0
    verdict = "reaches" if share >= least else "misses"
    sys.stdout.write(f"Branch coverage {verdict} {least:g} %: {covered} of {branches}, {share:.1f} %\n")
    return 0 if share >= least else 1


if __name__ == "__main__":
    sys.exit(main())
