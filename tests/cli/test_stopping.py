"""A signal ends what waits for it, at whichever instruction it comes."""

from __future__ import annotations

import signal

import pytest

from gputrace.cli.stopping import StopSignal


@pytest.fixture
def stopped():
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield StopSignal()
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_has_come_and_stays(stopped, number):
    assert not stopped.has_come()
    assert not stopped.wait(0.001)
    signal.raise_signal(number)
    assert stopped.has_come()
    assert stopped.wait()
    assert stopped.wait(0)
    assert stopped.has_come()


def test_it_comes_twice(stopped):
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)
    assert stopped.wait()
    assert stopped.wait()


# A handler that waits for a lock which the interrupted wait holds would hang here.
EVERY_INSTRUCTION = """
import faulthandler, signal, sys
from gputrace.cli.stopping import StopSignal

faulthandler.dump_traceback_later(60, exit=True)

def wait(signal_at):
    stopped, instructions = StopSignal(), 0

    def trace(frame, event, _):
        nonlocal instructions
        frame.f_trace_opcodes = True
        if event == "opcode":
            instructions += 1
            if instructions == signal_at:
                signal.raise_signal(signal.SIGTERM)
        return trace

    sys.settrace(trace)
    stopped.wait(0.01)
    sys.settrace(None)
    return instructions, stopped.has_come()

count, _ = wait(0)
for number in range(1, count + 1):
    assert wait(number)[1], number
print(count)
"""


def test_it_comes_at_any_instruction_of_the_wait(run_python):
    done = run_python(EVERY_INSTRUCTION)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 10
