"""The two clocks of this process, looked up where they are read: a simulation puts its own in their place."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: CLOCK_MONOTONIC, ns.
monotonic_ns: Callable[[], int] = time.monotonic_ns

#: Unix time, ns.
wall_ns: Callable[[], int] = time.time_ns
