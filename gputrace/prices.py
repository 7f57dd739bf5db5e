"""The price book of a running process: dated prices, read again whenever the file changes.

Nothing here raises once the book is open, and there is no built-in price: a
device without one has none.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gputrace.prices_file import read_overrides, read_table
from gputrace.prices_rows import Price, PriceBookError
from gputrace.prices_timeline import Ambiguity, PriceTable, Timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gputrace.prices_timeline import Amount, Held

PRICES_VARIABLE = "GPUTRACE_PRICES"
NODE_PRICE_VARIABLE = "GPUTRACE_NODE_PRICE"

_Signature = tuple[int, int, int]


def load(path: Path, name: str = "") -> PriceTable:
    """Read a price book once, as reports do: a node's own prices do not count here.

    Args:
        path: The TOML file.
        name: What it is called where it was given, for messages.

    Raises:
        PriceBookError: It cannot be read or used; the message names the file, the row and the key.
    """
    return _load(path, name)[0]


class PriceBook:
    """The prices in force, for the thread that charges.

    Args:
        path: The TOML file; `None` where a node has nothing but prices of its own.
        node_price: The node's own prices, as `prices_file.read_overrides` takes them.
        on_problem: Told, once each, what went wrong after the book was open. It is called by whoever asks for
            a price or for `refresh`, and must not raise.
        name: What the path is called where it was given, for messages.

    Raises:
        PriceBookError: The file or the node's price cannot be used.
    """

    def __init__(
        self,
        path: Path | None,
        node_price: str = "",
        on_problem: Callable[[str], None] | None = None,
        *,
        name: str = "",
    ) -> None:
        self._path = path
        self._overrides = read_overrides(node_price, NODE_PRICE_VARIABLE)
        self._on_problem = on_problem
        self._told: set[str] = set()
        self._signature: _Signature | None = None
        if path is None:
            self._adopt(PriceTable(NODE_PRICE_VARIABLE))
        else:
            table, self._signature = _load(path, name)
            self._adopt(table)

    @classmethod
    def from_environment(
        cls,
        path: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] | None = None,
        on_problem: Callable[[str], None] | None = None,
        *,
        name: str = "prices",
    ) -> PriceBook | None:
        """Return the book that was asked for, or `None` where nobody asked for one.

        Args:
            path: Given in code; else `GPUTRACE_PRICES` says.
            environment: `os.environ` by default.
            on_problem: As for the class.
            name: What `path` is called where it was given, for messages.

        Raises:
            PriceBookError: As for the class; the message begins with the name of the setting.
        """
        variables = os.environ if environment is None else environment
        chosen = variables.get(PRICES_VARIABLE) or None if path is None else path
        node_price = variables.get(NODE_PRICE_VARIABLE, "").strip()
        if chosen is None and not node_price:
            return None
        given_as = PRICES_VARIABLE if path is None else name
        return cls(None if chosen is None else Path(chosen), node_price, on_problem, name=given_as)

    def refresh(self) -> bool:
        """Look whether the file changed, and use the new one if it is right; never raises.

        One `stat` where it did not: cheap enough for every tick. A file that is
        gone or wrong leaves the prices as they were, and is told once.

        Returns:
            Whether other prices are in force now.
        """
        if self._path is None:
            return False
        try:
            signature = _signature(os.stat(self._path))  # noqa: PTH116 - half the time of Path.stat
            if signature == self._signature:
                return False
            table, self._signature = _read(self._path)
        except OSError as error:
            self._tell(f"{self._path}: {error.strerror or error}; its last prices stay in force")
            return False
        except PriceBookError as error:
            # A wrong file is not read again at each tick; one that cannot be opened is.
            self._signature = signature
            self._tell(f"{error}; the prices read before stay in force")
            return False
        self._told.clear()
        self._adopt(table)
        return True

    def price_of(
        self, device_id: str | None, name: str | None, kind: str | None, at_wall_ns: int
    ) -> Price | None:
        """Return the price of a device at a moment; `None` is no price.

        Args:
            device_id: `hw.id`; `None` asks for the price of any device of that name.
            name: `hw.name`.
            kind: `hw.type`.
            at_wall_ns: Unix time.
        """
        held = self._table.timeline(device_id, name, kind).at(at_wall_ns)
        return self._unambiguous(held, name or device_id)

    def changes_between(
        self, device_id: str | None, name: str | None, kind: str | None, start_wall_ns: int, end_wall_ns: int
    ) -> tuple[int, ...]:
        """Return the moments strictly inside a span at which another price begins.

        Args:
            device_id: As in `price_of`, likewise the others.
            name: `hw.name`.
            kind: `hw.type`.
            start_wall_ns: Unix time at which the span begins.
            end_wall_ns: Unix time at which it ends.
        """
        return self._table.timeline(device_id, name, kind).changes_between(start_wall_ns, end_wall_ns)

    def split(
        self, device: tuple[str | None, str | None, str | None], start_ns: int, end_ns: int, amount: Amount
    ) -> tuple[tuple[Price | None, Amount], ...]:
        """Split time that was charged over a span at the price changes inside it, for `Bill.add`.

        Args:
            device: `hw.id`, `hw.name` and `hw.type`.
            start_ns: Unix time at which the span begins, by the device's clock.
            end_ns: Unix time at which it ends.
            amount: Time charged in it; the parts sum to it exactly.
        """
        return tuple(
            (self._unambiguous(held, device[1] or device[0]), part)
            for held, part in self.timeline(device).split(start_ns, end_ns, amount)
        )

    def timeline(self, device: tuple[str | None, str | None, str | None]) -> Timeline:
        """Return all prices of a device, as they are known now."""
        return self._table.timeline(*device)

    def _adopt(self, table: PriceTable) -> None:
        # One assignment: a reader in another thread sees the old book or the new one, with its own memory.
        self._table = PriceTable(table.source, (*table.rows, *self._overrides), table.fleet)

    def _unambiguous(self, held: Held, device: str | None) -> Price | None:
        if isinstance(held, Ambiguity):
            self._tell(ambiguity(self._table.source, held, device))
            return None
        return held

    def _tell(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            if self._on_problem is not None:
                self._on_problem(message)


def ambiguity(source: str, held: Ambiguity, device: str | None) -> str:
    """Return the sentence about rows that claim one device with the same right."""
    return (
        f"{source}: {' and '.join(held.rows)} claim {device or 'a device'} alike, so that it has no price: "
        "give one of them a later valid_from, or name the device whole"
    )


def _load(path: Path, name: str) -> tuple[PriceTable, _Signature]:
    named = f"{name}: " if name else ""
    try:
        return _read(path)
    except OSError as error:
        raise PriceBookError(f"{named}{path}: {error.strerror or error}") from error
    except PriceBookError as error:
        raise PriceBookError(f"{named}{error}") from error


def _read(path: Path) -> tuple[PriceTable, _Signature]:
    with path.open("rb") as file:
        signature = _signature(os.fstat(file.fileno()))
        content = file.read()
    return read_table(content, str(path)), signature


def _signature(facts: os.stat_result) -> _Signature:
    # The inode too: editors and config maps put a new file in the place of the old one.
    return facts.st_mtime_ns, facts.st_size, facts.st_ino
