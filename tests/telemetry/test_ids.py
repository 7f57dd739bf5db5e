"""Ids of spans do not follow from the seed of the program, nor from that of a parent process."""

from __future__ import annotations

import os
import random

from gputrace.telemetry.ids import OwnIds


def test_a_program_that_seeds_gets_other_ids_each_time():
    ids = OwnIds()
    seen = set()
    for _ in range(3):
        random.seed(0)
        seen |= {ids.generate_span_id(), ids.generate_trace_id()}
    assert len(seen) == 6
    assert all(0 < one < 1 << 128 for one in seen)
    random.seed(0)
    first = random.random()
    random.seed(0)
    ids.generate_trace_id()
    assert random.random() == first


def test_a_forked_child_has_ids_of_its_own():
    ids = OwnIds()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, str(ids.generate_trace_id()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reading, 64)) != ids.generate_trace_id()
    os.close(reading)
    os.close(writing)
