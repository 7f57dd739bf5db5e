"""The short form of `make soak`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("soak.py")


def test_under_random_faults_the_ledger_balances_to_the_nanosecond():
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), "--seconds", "15", "--seed", "11"],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert ran.returncode == 0, ran.stderr
    assert "charged_s" in ran.stdout
