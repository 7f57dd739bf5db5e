"""One ring: what a reader sees of what a writer wrote, and that it never sees half of it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from time import monotonic_ns

import pytest
from hypothesis import given, strategies as st

from gputrace import node_folder, node_layout
from gputrace.node_files import MemoryRing
from gputrace.node_layout import UnknownFormatError
from gputrace.node_reader import Held, RingReader
from gputrace.node_ring import RingWriter


def ring(slots=16, begins_ns=0):
    memory = MemoryRing(node_folder.own_identity("me", slots))
    return memory, RingWriter(memory.buffer, slots), RingReader(memory.read_at, begins_ns)


def test_what_touches_is_merged_and_comes_with_the_frontier():
    _, writer, reader = ring()
    writer.append("gpu", 10, 20)
    writer.append("gpu", 20, 30)
    writer.append("gpu", 25, 28)
    writer.append("gpu", 40, 50)
    writer.floor(5)
    assert reader.read().held == [Held("gpu", 10, 30)]
    writer.frontier("gpu", 60)
    writer.floor(60)
    reading = reader.read()
    assert reading.held == [Held("gpu", 40, 50)]
    assert (reading.frontiers, reading.floor_ns, reading.is_closed) == ({"gpu": 60}, 60, False)
    assert reader.read().held == []


def test_starts_and_stops_of_calls_become_the_union():
    _, writer, reader = ring()
    writer.start("gpu", 10)
    writer.start("gpu", 15)
    writer.stop("gpu", 20)
    writer.frontier("gpu", 22)
    writer.stop("gpu", 30)
    # At one instant stops sort before starts.
    writer.start("gpu", 30)
    writer.frontier("gpu", 40)
    writer.close()
    reading = reader.read()
    assert reading.held == [Held("gpu", 10, 22), Held("gpu", 22, 40)]
    assert reading.is_closed


def test_a_ring_that_is_not_whole_or_of_another_version_is_refused():
    memory, _, _ = ring()
    for broken in (b"", b"GPUTRACE", b"no ring " * 100):
        with pytest.raises(UnknownFormatError):
            RingReader(lambda at, size, data=broken: data[at : at + size], 0)
    memory.buffer[8] = 77
    with pytest.raises(UnknownFormatError, match="version 77"):
        RingReader(memory.read_at, 0)


def test_devices_beyond_the_table_are_refused_in_words(caplog):
    _, writer, reader = ring()
    for number in range(node_layout.MOST_DEVICES + 1):
        writer.append(f"gpu-{number}", 1, 2)
        writer.frontier(f"gpu-{number}", 3)
    writer.append("x" * 200, 1, 2)
    writer.floor(3)
    assert len(reader.read().frontiers) == node_layout.MOST_DEVICES
    assert "at most 64 devices" in caplog.text


def test_a_cell_whose_newer_copy_is_torn_shows_the_one_before():
    memory, writer, reader = ring()
    writer.count(5, 1)
    writer.count(6, 2)
    at = node_layout.STATE_AT
    cell = bytearray(memory.read_at(at, node_layout.CELL_BYTES))
    newer = max((0, 64), key=lambda copy: int.from_bytes(cell[copy : copy + 8], "little"))
    memory.buffer[at + newer + 16] ^= 1
    assert node_layout.read_cell(memory.read_at, at)[1:3] == (5, 1)
    memory.buffer[at + (64 - newer) + 16] ^= 1
    assert node_layout.read_cell(memory.read_at, at) is None
    assert reader.read().floor_ns is None


def test_a_record_that_is_torn_is_missed_not_believed():
    memory, writer, reader = ring()
    for start in (10, 30, 50):
        writer.append("gpu", start, start + 10)
    writer.frontier("gpu", 100)
    writer.floor(100)
    memory.buffer[node_layout.RECORDS_AT + node_layout.RECORD_BYTES + 9] ^= 1
    reading = reader.read()
    assert reading.held == [Held("gpu", 10, 20), Held("gpu", 50, 60)]
    assert reading.missed == [Held("gpu", 20, 50)]
    assert reader.overwritten == 1


schedules = st.lists(
    st.tuples(st.sampled_from(["hold", "read", "frontier"]), st.sampled_from("ab"), st.integers(1, 6)),
    max_size=80,
)


class Watched:
    """A ring of few slots, and every moment that was held, seen, or missed."""

    def __init__(self, slots):
        _, self.writer, self.reader = ring(slots)
        self.held, self.seen, self.missed = ({"a": set(), "b": set()} for _ in range(3))
        self.now = 1

    def hold(self, device, length):
        self.writer.append(device, self.now, self.now + length)
        self.held[device] |= set(range(self.now, self.now + length))
        self.now += length + 1

    def frontier(self, device, _):
        self.writer.frontier(device, self.now)
        self.writer.floor(self.now)

    def read(self, *_):
        reading = self.reader.read()
        for stretches, into in ((reading.held, self.seen), (reading.missed, self.missed)):
            for device, start, end in stretches:
                into[device] |= set(range(start, end))
        for device, frontier in reading.frontiers.items():
            before = {at for at in self.held[device] if at < frontier}
            assert before <= self.seen[device] | self.missed[device]


@given(schedules, st.integers(1, 6))
def test_every_held_moment_is_read_or_known_to_be_missed(schedule, slots):
    """A small ring overflows all the time; nothing that is said of a moment is wrong."""
    watched = Watched(slots)
    for what, device, length in [*schedule, ("frontier", "a", 0), ("frontier", "b", 0), ("read", "a", 0)]:
        getattr(watched, what)(device, length)
    assert all(watched.seen[device] <= held for device, held in watched.held.items())
    if not watched.reader.overwritten:
        assert watched.seen == watched.held
        assert watched.missed == {"a": set(), "b": set()}


def test_a_reader_that_comes_late_misses_nothing_from_before_it():
    _, writer, _ = memory = ring(slots=4)
    for start in range(10, 100, 10):
        writer.append("gpu", start, start + 5)
    writer.append("idle", 1, 2)
    writer.frontier("gpu", 200)
    writer.frontier("idle", 200)
    writer.floor(200)
    reader = RingReader(memory[0].read_at, 150)
    assert reader.read().missed == []
    # One that asks for more than the ring keeps is told.
    assert RingReader(memory[0].read_at, 0).read().missed == [Held("gpu", 0, 70), Held("idle", 0, 1)]


def test_a_device_that_is_declared_while_records_go_by_unread_is_missed_too():
    """The ring is overwritten between two looks of one reading, by a device that the first did not know."""
    memory, writer, _ = ring(slots=4)
    writer.append("a", 10, 20)
    writer.frontier("a", 20)
    writer.floor(20)
    happened = []

    def read_at(at, size):
        if at == node_layout.device_cell_at(0) and happened == ["first"]:
            happened.append("second")
            for start in range(30, 90, 10):
                writer.append("b", start, start + 5)
            writer.frontier("b", 90)
            writer.frontier("a", 90)
        return memory.read_at(at, size)

    reader = RingReader(read_at, 0)
    reader.read()
    happened.append("first")
    reading = reader.read()
    assert [one.start_ns for one in reading.held] == [50, 60, 70, 80]
    assert Held("b", 20, 50) in reading.missed


WRITER = """
import sys
from pathlib import Path
from gputrace import node_folder
from gputrace.node_files import RingFile
from gputrace.node_ring import RingWriter

slots, rounds = int(sys.argv[2]), int(sys.argv[3])
own = RingFile(Path(sys.argv[1]), node_folder.own_identity("writer", slots))
writer = RingWriter(own.buffer, slots)
writer.floor(0)
print("ready", flush=True)
sys.stdin.readline()
at = 1
for _ in range(rounds):
    for _ in range(7):
        # The two halves of a record say the same twice: one that is torn would not.
        writer.append("gpu", at, at + 1 + at % 97)
        at += 100
    writer.frontier("gpu", at)
    writer.floor(at)
writer.close()
sys.stdin.readline()
"""


@pytest.mark.parametrize("slots", [8, 100_000])
def test_no_reader_in_another_process_sees_half_a_record(tmp_path, slots):
    """The small ring is overwritten while it is read; the large one keeps everything."""
    rounds = 3_000
    command = [sys.executable, "-c", WRITER, str(tmp_path), str(slots), str(rounds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        (path,) = tmp_path.glob("*.ring")
        with path.open("rb", buffering=0) as file:
            reader = RingReader(lambda at, size: os.pread(file.fileno(), size, at), 0)
            process.stdin.write("go\n")
            process.stdin.flush()
            held, deadline = [], monotonic_ns() + 60_000_000_000
            closed = False
            while not closed and monotonic_ns() < deadline:
                reading = reader.read()
                held += reading.held
                closed = reading.is_closed
                assert reading.frontiers.get("gpu", 0) <= rounds * 700 + 1
        process.stdin.write("done\n")
        process.stdin.flush()
        process.wait(60)
    assert closed
    assert all(end - start == 1 + start % 97 for _, start, end in held)
    assert [one.start_ns for one in held] == sorted({one.start_ns for one in held})
    assert len(held) + reader.overwritten == rounds * 7
    assert held
    if slots > rounds * 7:
        assert reader.overwritten == 0


def test_garbage_in_a_ring_is_survived():
    """A ring is another process's: whatever stands in it, reading ends and raises nothing else."""
    chance = random.Random(7)
    memory, writer, _ = ring()
    for start in range(10, 400, 10):
        writer.append("gpu", start, start + 5)
        writer.frontier("gpu", start + 5)
        writer.floor(start + 5)
    whole = bytes(memory.buffer)
    for _ in range(300):
        memory.buffer[:] = whole
        for _ in range(chance.choice([1, 10, 1000])):
            at = chance.randrange(node_layout.STATE_AT, len(whole))
            memory.buffer[at] = chance.randrange(256)
        most = chance.choice([len(whole), chance.randrange(node_layout.STATE_AT, len(whole))])
        reader = RingReader(lambda at, size, most=most: memory.read_at(at, max(0, min(size, most - at))), 0)
        assert all(Held("gpu", one.start_ns, one.start_ns + 5) == one for one in reader.read().held)
