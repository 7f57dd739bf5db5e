"""Checks in processes of their own: whatever becomes of one, the others answer and the command ends."""

from __future__ import annotations

PROGRAM = """
import os, signal, time
from gputrace.cli.doctor_apart import Job, run_apart

def crash():
    os.kill(os.getpid(), signal.SIGSEGV)

def wrong():
    raise ValueError("of no use")

def hang():
    while True:
        time.sleep(60)

answers = run_apart([
    Job("hang", hang, 1.0),
    Job("crash", crash, 50.0),
    Job("wrong", wrong, 50.0),
    Job("unpicklable", lambda: (lambda: 1), 50.0),
    Job("leaves", lambda: os._exit(3), 50.0),
    Job("large", lambda: "x" * 3_000_000, 50.0),
])
assert answers["hang"].problem == "no answer within 1 s", answers["hang"]
assert answers["crash"].problem == "its process was ended by SIGSEGV", answers["crash"]
assert answers["wrong"].problem == "ValueError: of no use", answers["wrong"]
assert "in wrong" in answers["wrong"].fault
assert answers["unpicklable"].fault
assert answers["leaves"].problem == "its process ended"
assert answers["large"] == ("x" * 3_000_000, None, None)
try:
    while True:
        os.waitpid(-1, 0)
except ChildProcessError:
    print("no child is left")
"""


def test_every_check_has_an_answer(run_python):
    assert run_python(PROGRAM).stdout == "no child is left\n"
