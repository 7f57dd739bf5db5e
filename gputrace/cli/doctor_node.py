"""Who else counts the devices of this node. Nothing is left in the folder, and nobody's role is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gputrace import node_folder, node_peers
from gputrace.cli.doctor_findings import Section
from gputrace.cli.doctor_hardware import sees_all_processes
from gputrace.node_publisher import Publisher

if TYPE_CHECKING:
    from gputrace.cli.doctor_apart import Answer

_SHARE = f"let containers share a folder, and name it in {node_folder.FOLDER_VARIABLE}"


class Node(NamedTuple):
    """What the node's folder holds.

    Attributes:
        folder: Where processes meet; `None` where they cannot.
        why_alone: Why not.
        processes: Those whose ring lies there.
        publisher: Instance id of the one that speaks for the devices.
    """

    folder: str | None
    why_alone: str | None = None
    processes: tuple[node_peers.Process, ...] = ()
    publisher: str | None = None


def look_around() -> Node:
    """Return who is there."""
    try:
        folder = node_folder.find()
    except OSError as error:
        return Node(None, str(error))
    # It never asks for the role, so that this one's name goes nowhere.
    publisher = Publisher(folder, "gputrace doctor")
    try:
        return Node(str(folder), None, tuple(node_peers.processes(folder)), publisher.holder())
    finally:
        publisher.release()


def node_section(answer: Answer) -> Section:
    """Say which other processes count here.

    Args:
        answer: A `Node`, or why there is none.
    """
    section = Section("node", "Other processes that use gputrace on this node")
    section.facts = {"folder": None, "publisher": None, "processes": []}
    node: Node | None = answer.value
    if node is None:
        section.warn(f"{node_folder.FOLDER_VARIABLE}: {answer.problem}")
        return section
    if node.folder is None:
        section.warn(f"each process counts alone, and sees no others: {node.why_alone}", _SHARE)
        return section
    section.facts = {
        "folder": node.folder,
        "publisher": node.publisher,
        "processes": [_facts(one) for one in node.processes],
    }
    living = [one for one in node.processes if one.lives]
    for one in living:
        role = ", publishes the devices" if one.instance_id == node.publisher else ""
        section.ok(
            f"process {one.pid} ({one.instance_id}){role}: {', '.join(one.devices) or 'no device yet'}"
        )
    if node.publisher is not None and node.publisher not in {one.instance_id for one in living}:
        section.ok(f"{node.publisher} publishes the devices")
    _say_others(section, node)
    if not living:
        section.ok(f"none in {node.folder}")
    if not sees_all_processes(node_folder.pid_namespace()):
        section.note(f"processes of other containers are seen only if they share {node.folder}", _SHARE)
    return section


def _say_others(section: Section, node: Node) -> None:
    unread = [one for one in node.processes if not one.lives and one.problem not in {None, "earlier boot"}]
    dead = len([one for one in node.processes if not one.lives]) - len(unread)
    for one in unread:
        section.warn(
            f"what {one.instance_id} holds cannot be read: {one.problem}", "use one version of gputrace"
        )
    if dead:
        section.note(f"{dead} process(es) that ended left a file behind; the next publisher takes it away")


def _facts(process: node_peers.Process) -> dict[str, Any]:
    return {
        "instance_id": process.instance_id,
        "pid": process.pid,
        "lives": process.lives,
        "devices": list(process.devices),
        "problem": process.problem,
    }
