"""What the garbage collector closes while the program is in the midst of setting a ContextVar.

Before Python 3.12 the collector runs within allocations, and a ``set`` in a
finalizer makes the ``set`` that it interrupts read freed memory
(https://github.com/python/cpython/issues/148891). Contexts then lose
variables and the process may die, so each case has a process of its own.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc, sys, warnings
from contextvars import ContextVar, copy_context
import gputrace

warnings.simplefilter("ignore")
variables = [ContextVar(f"variable {number}") for number in range(20)]

class Suspension:
    def __await__(self):
        yield

@gputrace.track
def generator():
    yield

@gputrace.track
async def coroutine():
    await Suspension()

@gputrace.track
async def async_generator():
    yield

def abandon(kind):
    if kind == "generator":
        started = generator()
        next(started)
    elif kind == "coroutine":
        started = coroutine()
        started.send(None)
    else:
        started = async_generator()
        try:
            started.asend(None).send(None)
        except StopIteration:
            pass
    ring = [started]
    ring.append(ring)

for variable in variables:
    variable.set(object())
gputrace.current()
for attempt in range(5_000):
    gc.disable()
    abandon(sys.argv[1])
    gc.set_threshold(1 + attempt % 40)
    gc.enable()
    for variable in variables[attempt % 4 :]:
        variable.set(object())
    gc.disable()
    found = dict(copy_context().items())
    assert len(copy_context()) == len(found), (attempt, len(copy_context()))
    assert all(copy_context().get(variable) is found[variable] for variable in variables), attempt
"""


@pytest.mark.parametrize("kind", ["generator", "coroutine", "async generator"])
def test_what_a_collection_closes_in_the_midst_of_a_set_harms_no_context(kind):
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
