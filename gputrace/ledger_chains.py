"""Who runs inside whom, for :mod:`gputrace.ledger`, which states the rules: pure arithmetic."""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

#: What names a call, a root or a device.
Id: TypeAlias = int | str

#: Closed calls of an open root that a later child may still name as its parent.
REMEMBERED_LINKS = 1024


class CallRecord:
    """A call: its owner and its place in the chain.

    A record that is neither open nor closed is a parent that only a child has named so far.

    Attributes:
        name: The id of the call.
        root: The id of its owner, the outermost call.
        weight: The weight of the root, where it is the same on all devices.
        parent: The record above it, None where the chain ends.
        is_open: Whether it may start to hold.
        is_closed: Whether it can hold nothing any more.
        starts: Starts without a stop, on all devices together.
    """

    __slots__ = ("is_closed", "is_open", "name", "parent", "root", "starts", "weight")

    def __init__(self, name: Id, root: Id) -> None:
        self.name = name
        self.root = root
        self.weight = 1
        self.parent: CallRecord | None = None
        self.is_open = False
        self.is_closed = False
        self.starts = 0


class _Group:
    """The open calls of one root, counted, and the links of those that closed."""

    __slots__ = ("links", "open_calls", "weight")

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.open_calls = 0
        self.links: deque[CallRecord] | None = None


class Chains:
    """The calls that are open, their roots, and the chain above each."""

    def __init__(self) -> None:
        self._calls: dict[Id, CallRecord] = {}
        self._groups: dict[Id, _Group] = {}

    def open(self, name: Id, root: Id, parent: Id | None, weight: int) -> None:
        """Make a call known, as :meth:`gputrace.ledger.Ledger.open` says.

        Raises:
            ValueError: As there; then nothing has changed.
        """
        record = self._calls.get(name)
        if record is not None and record.is_open:
            raise ValueError(f"call {name!r} is open already; close it first, or use another id")
        if record is None or record.is_closed:
            record = CallRecord(name, root)
        elif record.root != root:
            raise other_root(name, root, record)
        above = None if parent is None else self._find_parent(record, parent)
        group = self._find_group(name, root, weight)
        if above is not None and above.name not in self._calls:
            self._calls[above.name] = above
            self._remember(group, above)
        self._calls[name] = record
        record.parent = above
        record.weight = weight
        record.is_open = True
        group.open_calls += 1

    def get(self, name: Id, event: str) -> CallRecord:
        """Return the record of an open call.

        Raises:
            ValueError: It is not open; names the event that needs it.
        """
        record = self._calls.get(name)
        if record is None or not record.is_open:
            raise ValueError(f"{event} of call {name!r}: it is not open; open it before and close it last")
        return record

    def close(self, name: Id) -> None:
        """Close a call, and with the last open one of a root forget all of that root.

        Raises:
            ValueError: The call is not open, or still holds a device.
        """
        record = self.get(name, "close")
        if record.starts:
            raise ValueError(f"close of call {name!r}: it still holds, {record.starts} stops are missing")
        record.is_open = False
        record.is_closed = True
        group = self._groups[record.root]
        group.open_calls -= 1
        if group.open_calls:
            self._remember(group, record)
            return
        del self._groups[record.root]
        self._forget(record)
        for link in group.links or ():
            self._forget(link)

    def _find_parent(self, record: CallRecord, parent: Id) -> CallRecord:
        """Return the record above, a new one where it is not known yet."""
        if parent == record.name:
            raise own_ancestor(record.name)
        above = self._calls.get(parent)
        if above is None:
            return CallRecord(parent, record.root)
        if above.root != record.root:
            raise other_root(record.name, record.root, above)
        # Closed calls hold no more. Kept, a chain of calls each opened by the one before grows for ever.
        while above.parent is not None and above.parent.is_closed:
            above.parent = above.parent.parent
        if record.name in self._calls:
            _refuse_return(record, above)
        return above

    def _find_group(self, name: Id, root: Id, weight: int) -> _Group:
        check_weight(name, weight)
        group = self._groups.get(root)
        if group is None:
            group = self._groups[root] = _Group(weight)
        elif group.weight != weight:
            raise ValueError(
                f"call {name!r} gives root {root!r} the weight {weight}, its other open calls gave"
                f" {group.weight}; a root has one weight"
            )
        return group

    def _remember(self, group: _Group, record: CallRecord) -> None:
        """Keep a link that later children may name, and drop the oldest."""
        if group.links is None:
            group.links = deque()
        group.links.append(record)
        if len(group.links) > REMEMBERED_LINKS:
            oldest = group.links.popleft()
            if not oldest.is_open:
                self._forget(oldest)

    def _forget(self, record: CallRecord) -> None:
        # Its id may belong to a newer record by now.
        if self._calls.get(record.name) is record:
            del self._calls[record.name]


def _refuse_return(record: CallRecord, above: CallRecord | None) -> None:
    """Refuse a parent that hangs under ``record`` itself, which children named before it was opened."""
    while above is not None:
        if above is record:
            raise own_ancestor(record.name)
        above = above.parent


def check_weight(name: Id, weight: object) -> None:
    """Refuse a weight that is no int >= 1.

    Raises:
        ValueError: It is none; names the call.
    """
    if not isinstance(weight, int) or weight < 1:
        raise ValueError(f"call {name!r} has the weight {weight!r}; give an int >= 1")


def other_root(name: Id, root: Id, record: CallRecord) -> ValueError:
    """Return the error for a call of ``root`` that is tied to a record of another root."""
    what = "elsewhere it" if record.name == name else f"its parent {record.name!r}"
    return ValueError(
        f"call {name!r} has the root {root!r}, but {what} has {record.root!r};"
        " a call and all above it share one root"
    )


def own_ancestor(name: Id) -> ValueError:
    """Return the error for a chain of parents that comes back to a call."""
    return ValueError(f"call {name!r} is its own ancestor; give as parent the call that it runs inside")


def not_holding(name: Id, device: Id, at_ns: int) -> ValueError:
    """Return the error for a stop without a start."""
    return ValueError(
        f"stop of call {name!r} on device {device!r} at {at_ns} ns: it does not hold that device; give each"
        " start exactly one stop"
    )
