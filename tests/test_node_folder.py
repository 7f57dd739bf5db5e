"""The folder where processes meet: whose it is, what is wrong with it, and what the dead left in it."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from time import monotonic, monotonic_ns
from unittest import mock

import pytest

from gputrace import faults, node_folder, node_layout, node_peers, node_ring
from gputrace.node import Node
from gputrace.node_files import RingFile
from gputrace.node_peers import Peers
from gputrace.node_publisher import Publisher
from gputrace.node_ring import RingWriter
from gputrace.node_union import Union

NOBODY = 65_534


@pytest.fixture(autouse=True)
def _fresh_log():
    faults.reset()


@pytest.fixture
def join():
    """`join(folder)` is a node there, closed at the end of the test."""
    nodes = []

    def join(folder, name="me", **given):
        environment = {"GPUTRACE_NODE_DIR": str(folder)}
        nodes.append(Node(name, monotonic_ns(), environment=environment, **given))
        return nodes[-1]

    yield join
    for node in nodes:
        node.close(monotonic_ns())


def goes_on_alone(node):
    began = monotonic_ns()
    node.ring.append("GPU-1", began, began + 10)
    node.ring.frontier("GPU-1", began + 10)
    assert node.is_publisher
    assert node.tick(began + 10)["GPU-1"].charged_ns == 10
    assert node.others() == []
    assert node.publisher_id() == node.instance_id
    assert node.reap() == []
    return node.folder is None


def one_line(caplog):
    (record,) = caplog.records
    return record.getMessage()


def test_the_default_is_a_folder_of_this_user_alone(monkeypatch, tmp_path):
    monkeypatch.setattr(node_folder, "MEMORY", tmp_path)
    folder = node_folder.find({})
    assert folder == tmp_path / f"gputrace-{os.geteuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)
    assert stat.S_IMODE(node_folder.find({}).stat().st_mode) == 0o700


def test_without_memory_files_the_temporary_folder_serves(monkeypatch, tmp_path):
    monkeypatch.setattr(node_folder, "MEMORY", tmp_path / "missing")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert node_folder.find({}).parent == tmp_path


@pytest.mark.parametrize("planted", ["link", "file", "of another user"])
def test_a_default_folder_that_somebody_planted_is_not_used(monkeypatch, tmp_path, caplog, planted):
    monkeypatch.setattr(node_folder, "MEMORY", tmp_path)
    path = tmp_path / f"gputrace-{os.geteuid()}"
    if planted == "link":
        (tmp_path / "elsewhere").mkdir()
        path.symlink_to(tmp_path / "elsewhere")
    elif planted == "file":
        path.touch()
    else:
        path.mkdir()
        owner = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
        path.rename(tmp_path / f"gputrace-{owner + 1}")
    node = Node("me", monotonic_ns(), environment={})
    assert goes_on_alone(node)
    assert node.why_alone in one_line(caplog)
    node.close(monotonic_ns())


def test_a_given_folder_of_another_user_is_refused_with_a_remedy(monkeypatch, tmp_path, caplog, join):
    owner = tmp_path.stat().st_uid
    if owner == 0:
        os.chown(tmp_path, 4242, -1)
        owner = 4242
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert goes_on_alone(join(tmp_path))
    assert f"belongs to user {owner}; give it to root or to user {owner + 1}" in one_line(caplog)


def as_ordinary_user(check):
    """Runs `check` in a child that root's rights do not help."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            check()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("mode", [0o555, 0o000])
def test_a_folder_that_may_not_be_written_is_refused_in_one_line(caplog, join, mode):
    folder = Path(tempfile.mkdtemp())
    folder.chmod(mode)

    def check():
        assert goes_on_alone(join(folder))
        assert f"may not write into {folder}" in one_line(caplog)

    try:
        as_ordinary_user(check)
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)


def test_a_folder_that_cannot_be_made_is_refused_in_one_line(caplog, join, tmp_path):
    (tmp_path / "file").touch()
    assert goes_on_alone(join(tmp_path / "file" / "folder"))
    assert "counts its devices alone" in one_line(caplog)


def test_no_space_is_noticed_before_anything_is_mapped(monkeypatch, caplog, join, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert goes_on_alone(join(tmp_path))
    assert "No space left on device" in one_line(caplog)
    assert list(tmp_path.iterdir()) == []


def test_the_kernel_refuses_space_and_the_program_goes_on(caplog, join, tmp_path):
    def check():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        assert goes_on_alone(join(tmp_path))
        assert "File too large" in one_line(caplog)

    child = os.fork()
    if child == 0:
        code = 1
        try:
            check()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(tmp_path.iterdir()) == []


def test_the_space_of_a_ring_is_taken_at_once_and_stays(join, tmp_path):
    node = join(tmp_path, slots=64)
    (path,) = tmp_path.glob("*.ring")
    size = path.stat()
    for start in range(10_000):
        node.ring.append("GPU-1", 10 * start, 10 * start + 5)
    node.ring.frontier("GPU-1", 200_000)
    assert path.stat().st_size == size.st_size == node_layout.file_bytes(64)
    assert path.stat().st_blocks == size.st_blocks > 0


def test_what_overflowed_is_counted_and_unknown_never_idle(join, tmp_path):
    node = join(tmp_path, slots=8)
    began = monotonic_ns()
    node.ring.frontier("GPU-1", began)
    node.tick(began)
    for number in range(20):
        node.ring.append("GPU-1", began + 10 * number, began + 10 * number + 5)
    node.ring.frontier("GPU-1", began + 200)
    shared = node.tick(began + 200)["GPU-1"]
    assert node.overwritten == 12
    assert shared == (8 * 5, 0, 120)
    assert node.held_between("GPU-1", began, began + 200) == 40
    assert node.missed_between("GPU-1", began, began + 200) == 120


def ring_of_the_dead(folder, accepted=5, exported=2, **changed):
    """Leaves what a killed process leaves."""
    identity = node_folder.own_identity("dead", 8)._replace(**changed)
    own = RingFile(folder, identity)
    # It has been silent for long.
    with mock.patch.object(node_ring, "monotonic_ns", return_value=1):
        writer = RingWriter(own.buffer, 8)
        writer.append("GPU-1", 10, 20)
        writer.start("GPU-1", 30)
        writer.frontier("GPU-1", 40)
        writer.count(accepted, exported)
    own.close()
    return own.path


def test_what_a_process_wrote_last_is_read_after_it_was_found_dead(tmp_path):
    ring_of_the_dead(tmp_path)
    union = Union(0)
    peers = Peers(tmp_path, None, union, 0)
    peers.read()
    assert union.advance(100) == {"GPU-1": (20, 0, 0)}
    assert [dead.lost for dead in peers.reap()] == [3]


def test_what_the_dead_lost_goes_to_one_reaper(tmp_path):
    """Two that believe to publish at the same moment, say while one hands over."""
    paths = [ring_of_the_dead(tmp_path) for _ in range(40)]
    begin = Barrier(4)

    def reap():
        peers = Peers(tmp_path, None, Union(0), 0)
        peers.read()
        begin.wait(60)
        found = peers.reap()
        peers.close()
        return found

    with ThreadPoolExecutor(4) as pool:
        reapers = [pool.submit(reap) for _ in range(4)]
        found = [dead for reaper in reapers for dead in reaper.result()]
    assert [dead.lost for dead in found] == [3] * len(paths)
    assert list(tmp_path.iterdir()) == []


def test_a_reused_process_id_is_not_taken_for_the_writer(tmp_path):
    identity = node_folder.own_identity("earlier", 8)
    own = RingFile(tmp_path, identity)
    with own.path.open("rb") as file:
        assert node_folder.lives(identity, file.fileno())
        # The lock may stay with a child that was forked without Python's knowledge.
        assert not node_folder.lives(identity._replace(started=identity.started - 1), file.fileno())
        # Another container's process ids mean nothing here: the lock tells.
        assert node_folder.lives(identity._replace(started=1, pid_namespace=1), file.fileno())
        own.close()
        assert not node_folder.lives(identity, file.fileno())


def test_a_process_that_nobody_waited_for_is_dead():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert node_folder.started(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert node_folder.started(process.pid) is None


def test_rings_of_an_earlier_boot_are_ignored_and_removed(join, tmp_path):
    path = ring_of_the_dead(tmp_path, boot="00000000-earlier")
    node = join(tmp_path)
    node.tick(monotonic_ns())
    assert not path.exists()
    assert node.reap() == []


def test_rings_that_were_never_finished_are_removed_unless_they_are_being_made(join, tmp_path):
    (tmp_path / "1-dead.new").touch()
    with (tmp_path / "2-making.new").open("w") as making:
        node_folder.lock(making.fileno())
        join(tmp_path).reap()
        assert [path.name for path in tmp_path.glob("*.new")] == ["2-making.new"]


def test_a_ring_that_was_removed_while_it_was_made_is_made_anew(monkeypatch, tmp_path):
    real, removed = os.posix_fallocate, []

    def fallocate(*arguments):
        real(*arguments)
        if not removed:
            (path,) = tmp_path.glob("*.new")
            path.unlink()
            removed.append(path)

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    own = RingFile(tmp_path, node_folder.own_identity("me", 8))
    assert removed
    assert own.path.exists()
    own.close()


@pytest.mark.parametrize("content", [b"", b"GPUTRACE" + b"\x09" * 400])
def test_a_ring_that_cannot_be_read_is_told_of_once_and_left(join, tmp_path, caplog, content):
    (tmp_path / "9-other.ring").write_bytes(content)
    node = join(tmp_path)
    node.tick(monotonic_ns())
    node.tick(monotonic_ns())
    assert "is not seen" in one_line(caplog)
    (other,) = node.others()
    assert other.problem
    assert (tmp_path / "9-other.ring").exists()


def test_a_ring_cut_short_under_its_reader_ends_in_no_signal(join, tmp_path):
    path = ring_of_the_dead(tmp_path)
    node = join(tmp_path)
    node.tick(monotonic_ns())
    os.truncate(path, 100)
    node.tick(monotonic_ns())


def test_the_role_follows_the_file_that_others_find(tmp_path):
    first, second = Publisher(tmp_path, "a"), Publisher(tmp_path, "b")
    assert first.try_acquire()
    assert not second.try_acquire()
    # Somebody cleans the folder.
    (tmp_path / "publisher.lock").unlink()
    assert second.try_acquire()
    assert not first.try_acquire()
    assert (first.holder(), second.holder()) == ("b", "b")
    second.release()
    assert first.try_acquire()
    first.release()


def test_a_role_that_cannot_be_asked_for_is_nobodys_and_one_line(tmp_path, caplog):
    publisher = Publisher(tmp_path / "missing", "a")
    assert not publisher.try_acquire()
    assert not publisher.try_acquire()
    assert "cannot publish" in one_line(caplog)
    assert publisher.holder() is None


def test_memory_is_bounded_while_a_process_stalls(monkeypatch, join, tmp_path):
    """The others are left unread meanwhile: what their rings then lose is unknown."""
    monkeypatch.setattr(node_peers, "MOST_WAITING", 20)
    node, stalled = join(tmp_path, "a", slots=16), join(tmp_path, "b")
    at = monotonic_ns()
    stalled.tick(at)
    for _ in range(30):
        for _ in range(5):
            node.ring.append("GPU-1", at, at + 5)
            at += 10
        node.ring.frontier("GPU-1", at)
        node.tick(at)
        assert node._union.waiting <= 20 + 16
    stalled.tick(at)
    # What was left unread is read as soon as there is room.
    node.tick(at)
    node.tick(at)
    assert node.final_ns("GPU-1") == at
    charged, missed = (ask("GPU-1", at - 30 * 50, at) for ask in (node.held_between, node.missed_between))
    assert node.overwritten > 0
    assert charged + 5 * node.overwritten == 30 * 5 * 5
    assert missed >= 5 * node.overwritten


def test_the_role_ends_with_what_was_counted(join, tmp_path):
    first = join(tmp_path, "a", slots=4)
    began = monotonic_ns()
    for number in range(9):
        first.ring.append("GPU-1", began + 10 * number, began + 10 * number + 5)
    first.ring.frontier("GPU-1", began + 100)
    first.tick(began + 100)
    assert first.overwritten == 5
    agent = join(tmp_path, "agent", agent=True)
    first.tick(monotonic_ns())
    assert (first.is_publisher, first.overwritten) == (False, 5)
    deadline = monotonic() + 60
    while not agent.is_publisher and monotonic() < deadline:
        agent.tick(monotonic_ns())
    assert agent.is_publisher
