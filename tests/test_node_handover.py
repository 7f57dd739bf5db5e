"""What one publisher leaves to the next, and when the next goes on from there."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest

from gputrace import node_folder, node_handover
from gputrace.node import Node
from gputrace.node_handover import Shown

S = 1_000_000_000
FILE = "published.json"
WORD = {"GPU-1": Shown(5 * S, "NVIDIA H100", "GPU-0", 7), "GPU-2": Shown(6 * S)}


@pytest.fixture
def join(tmp_path):
    """`join(name, now_ns)` is a node in a folder that all of them share."""
    with ExitStack() as joined:

        def join(name, now_ns, **others):
            node = Node(name, now_ns, environment={"GPUTRACE_NODE_DIR": str(tmp_path)}, **others)
            joined.callback(node.forget)
            return node

        yield join


def hold(node, start_ns, end_ns, device="GPU-1"):
    node.ring.append(device, start_ns, end_ns)
    node.ring.frontier(device, end_ns)


def test_what_was_written_is_read(tmp_path):
    node_handover.write(tmp_path, WORD)
    assert node_handover.read(tmp_path) == WORD
    # Nothing half written stays beside it.
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_the_last_word_counts(tmp_path):
    node_handover.write(tmp_path, WORD)
    node_handover.write(tmp_path, {"GPU-1": Shown(9 * S)})
    assert node_handover.read(tmp_path) == {"GPU-1": Shown(9 * S)}


def test_no_word_is_no_device(tmp_path):
    assert node_handover.read(tmp_path) == {}


def test_the_clock_of_another_boot_means_nothing(tmp_path, monkeypatch):
    node_handover.write(tmp_path, WORD)
    monkeypatch.setattr(node_folder, "boot_id", lambda: "another")
    assert node_handover.read(tmp_path) == {}


def foreign():
    boot = node_folder.boot_id()
    whole = json.dumps({"boot": boot, "devices": WORD})
    yield "torn", whole[: len(whole) // 2]
    yield "empty", ""
    yield "a list", "[]"
    yield "a number", "3"
    yield "no boot", json.dumps({"devices": WORD})
    yield "no devices", json.dumps({"boot": boot})
    yield "devices are a list", json.dumps({"boot": boot, "devices": [1]})
    yield "fields are missing", json.dumps({"boot": boot, "devices": {"GPU-1": []}})
    yield "fields are no list", json.dumps({"boot": boot, "devices": {"GPU-1": 3}})
    yield "an instant that is none", json.dumps({"boot": boot, "devices": {"GPU-1": ["soon", None]}})
    yield "a name that is none", json.dumps({"boot": boot, "devices": {"GPU-1": [1, 5]}})
    yield "less than nothing untold", json.dumps({"boot": boot, "devices": {"GPU-1": [1, None, None, -1]}})


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in foreign()])
def test_what_cannot_be_understood_is_ignored(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    assert node_handover.read(tmp_path) is None


def test_bytes_that_are_no_text_are_ignored(tmp_path):
    (tmp_path / FILE).write_bytes(b"\xff\xfe{}")
    assert node_handover.read(tmp_path) is None


def test_what_another_version_says_beyond_what_is_known_is_ignored(tmp_path):
    devices = {device: [*shown, "tomorrow"] for device, shown in WORD.items()}
    word = {"boot": node_folder.boot_id(), "devices": devices, "weather": "fine"}
    (tmp_path / FILE).write_text(json.dumps(word))
    assert node_handover.read(tmp_path) == WORD


def test_the_next_publisher_goes_on_where_the_last_one_said_that_it_ended(join):
    first, second = join("first", S), join("second", S)
    for node in (first, second):
        hold(node, 2 * S, 4 * S)
        node.ring.floor(4 * S)
    assert first.tick(4 * S)["GPU-1"].charged_ns == 2 * S
    first.leave_word({"GPU-1": Shown(3 * S, "NVIDIA H100")})
    first.close(4 * S)
    hold(second, 4 * S, 5 * S)
    assert second.tick(5 * S)["GPU-1"].charged_ns == 2 * S
    assert second.taken_over == {"GPU-1": Shown(3 * S, "NVIDIA H100")}
    assert second.begins_ns("GPU-1") == 3 * S
    assert second.first_held_ns("GPU-1") == 3 * S


def test_word_from_before_this_process_began_is_not_resumed(join):
    first = join("first", S)
    hold(first, 2 * S, 3 * S)
    first.tick(3 * S)
    first.leave_word({"GPU-1": Shown(3 * S, "NVIDIA H100", None, 9)})
    first.leave()
    second = join("second", 60 * S)
    assert second.is_publisher
    assert second.taken_over == {}
    assert second.begins_ns("GPU-1") == 59 * S


def test_word_of_a_moment_before_this_process_began_is_a_change_of_hands(join):
    """An agent that begins: others have not said yet what they held until then, so nobody could show it."""
    first = join("first", S)
    hold(first, 2 * S, 4 * S)
    first.tick(4 * S)
    first.leave_word({"GPU-1": Shown(3 * S, "NVIDIA H100")})
    first.leave()
    second = join("second", 4 * S)
    assert second.taken_over == {"GPU-1": Shown(3 * S, "NVIDIA H100")}
    assert second.begins_ns("GPU-1") == 3 * S


def test_what_nobody_showed_since_this_process_began_is_shown(join):
    """The last publisher exported before this process began, and was killed before the next time."""
    first = join("first", S)
    first.leave_word({"GPU-1": Shown(3 * S, "NVIDIA H100")})
    second = join("second", 6 * S)
    first.close(6 * S)
    hold(second, 7 * S, 8 * S)
    assert second.tick(9 * S)["GPU-1"].charged_ns == S
    assert second.taken_over == {}
    assert second.begins_ns("GPU-1") == 5 * S


def test_what_no_word_speaks_of_was_never_shown(join):
    """The last publisher was killed before a reader looked, or before it knew of the device."""
    first, second = join("first", S), join("second", 2 * S)
    hold(second, 2 * S, 3 * S)
    first.leave_word({"GPU-2": Shown(4 * S)})
    first.close(4 * S)
    assert second.tick(4 * S)["GPU-1"].charged_ns == S
    assert (second.begins_ns("GPU-1"), second.begins_ns("GPU-2")) == (S, 4 * S)


def test_where_it_cannot_be_known_what_was_shown_it_begins_with_the_role(join, tmp_path):
    first, second = join("first", S), join("second", S)
    hold(second, 2 * S, 3 * S)
    first.close(4 * S)
    (tmp_path / FILE).write_text("{")
    assert second.tick(4 * S) == {}
    assert second.begins_ns("GPU-1") == 4 * S


def test_word_of_what_is_still_to_come_is_not_believed(join):
    first, second = join("first", S), join("second", S)
    first.leave_word({"GPU-1": Shown(90 * S)})
    first.leave()
    second.tick(4 * S)
    assert second.taken_over == {}
    assert second.begins_ns("GPU-1") == 0


def test_only_the_publisher_leaves_word(join, tmp_path):
    first, second = join("first", S), join("second", S)
    second.leave_word(WORD)
    assert not (tmp_path / FILE).exists()
    first.leave_word(WORD)
    assert node_handover.read(tmp_path) == WORD
    first.leave()
    first.leave_word({})
    assert node_handover.read(tmp_path) == WORD


def test_a_folder_that_takes_no_more_is_a_fault_and_no_error(join, tmp_path, monkeypatch):
    monkeypatch.delenv("GPUTRACE_RAISE_FAULTS")
    first = join("first", S)
    (tmp_path / "published.part").mkdir()
    first.leave_word(WORD)
    assert node_handover.read(tmp_path) == {}


def test_before_another_one_takes_the_role_what_is_final_by_then_is_handed_over(join):
    first = join("first", S)
    parted = []
    first.on_parting = lambda now_ns, last: parted.append((now_ns, last, first.is_publisher))
    agent = join("agent", 2 * S, agent=True)
    hold(first, S, 3 * S)
    assert first.tick(3 * S) == {}
    # The agent can say nothing yet of what comes after it began.
    ((at_ns, last, was_publisher),) = parted
    assert (at_ns, last["GPU-1"].charged_ns, was_publisher) == (3 * S, S, True)
    assert not first.is_publisher
    agent.tick(4 * S)
    assert agent.is_publisher
    first.tick(5 * S)
    assert len(parted) == 1
