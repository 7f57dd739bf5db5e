"""Whether what is reported was measured, or made up by `gputrace simulate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gputrace import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gputrace.analysis.store import Store

_IN_WINDOW = """
SELECT count(*), count(*) FILTER (simulated)
FROM origin JOIN process USING (process) WHERE base_ns IS NULL OR last_ns > base_ns
"""


@dataclass(frozen=True, slots=True)
class Origins:
    """How many of something there are, and how many of them a simulation made up.

    Attributes:
        count: All of them.
        simulated: Those whose resource says `gputrace.simulated=true`.
    """

    count: int = 0
    simulated: int = 0

    @property
    def mixed(self) -> bool:
        """Say whether some were measured and some made up."""
        return 0 < self.simulated < self.count


def read(store: Store) -> Origins:
    """Count the processes that exported in the window.

    Args:
        store: A store whose points are loaded, and whose table `process` says where the window begins.
    """
    ((count, simulated),) = store.rows(_IN_WINDOW)
    return Origins(count, simulated)


def notes(found: Origins, what: str) -> Iterable[str]:
    """Yield what a reader must know before all else.

    Args:
        found: What was read.
        what: What was counted, in the plural.
    """
    if found.mixed:
        are = "is" if found.simulated == 1 else "are"
        yield (
            f"Measured and simulated data are mixed: {found.simulated:,} of {found.count:,} {what} {are} "
            f"simulated ({catalogue.SIMULATED}=true), and no sum of both means anything. Give the simulation "
            "a folder of its own (gputrace simulate --data DIR)."
        )
    elif found.simulated:
        yield f"All of this is simulated ({catalogue.SIMULATED}=true): nobody measured it."
