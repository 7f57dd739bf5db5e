"""What one decorator or block says about the calls that are made through it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from gputrace.devices import cuda

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gputrace.attribution import Attribution

HOLD_STEPS = "steps"
HOLD_CALL = "call"
HOLD_NONE = "none"
HOLDS = (HOLD_STEPS, HOLD_CALL, HOLD_NONE)

#: What all sites together remember: each request may bring an attribution of its own.
_MERGED_LIMIT = 4_096
#: Where each of it lies, the oldest first.
_merged: deque[tuple[dict[Attribution, Attribution], Attribution]] = deque()


class Site:
    """What one ``track`` or ``span`` says about the calls made through it.

    Attributes:
        operation: Name of the work.
        overrides: Attribution fields given explicitly.
        hold: ``steps``, ``call`` or ``none``.
        devices: Devices given explicitly, None for the current one.
        streams: Side streams that are timed as well.
        weight: Weight of the call as an owner of a device.
        attributes: More attributes for the span, never for metrics.
        code_function: Qualified name of the decorated function.
    """

    __slots__ = (
        "attributes",
        "code_function",
        "devices",
        "hold",
        "merged",
        "operation",
        "overrides",
        "streams",
        "weight",
    )

    #: A container whose calls are summed up: see ``gputrace.requests``.
    is_request = False
    #: What its calls are charged is split among members: see ``gputrace.batching``.
    is_batch = False
    #: Its calls begin staged work: see ``gputrace.staged``.
    is_staged = False
    #: Its calls get spans, where their trace is sampled.
    has_spans = True

    def __init__(  # noqa: PLR0913 - the arguments of track(), in one place
        self,
        operation: str,
        overrides: Mapping[str, str],
        *,
        hold: str = HOLD_STEPS,
        devices: Any = None,
        streams: Any = None,
        weight: int = 1,
        attributes: Mapping[str, Any] | None = None,
        code_function: str | None = None,
    ) -> None:
        self.operation = operation
        self.overrides = dict(overrides)
        # The very constants, so that the hot path compares by identity, unpickled sites too.
        self.hold = HOLDS[HOLDS.index(hold)]
        self.devices = devices
        self.streams = streams
        self.weight = weight
        self.attributes = dict(attributes or {})
        self.code_function = code_function
        self.merged: dict[Attribution, Attribution] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what was given and leave the caches behind: they hold identities."""
        given = (
            self.operation,
            self.overrides,
            self.hold,
            self.devices,
            self.streams,
            self.weight,
            self.attributes,
            self.code_function,
        )
        return (_rebuild_site, given)

    def attribution_under(self, outer: Attribution) -> Attribution:
        """Return what a call made through this site inside ``outer`` is billed to."""
        merged = self.merged.get(outer)
        if merged is None:
            merged = self.merged[outer] = outer.merged(self.overrides)
            _merged.append((self.merged, outer))
            if len(_merged) > _MERGED_LIMIT:
                memory, oldest = _merged.popleft()
                memory.pop(oldest, None)
        return merged


def _rebuild_site(*given: Any) -> Site:
    operation, overrides, hold, devices, streams, weight, attributes, code_function = given
    return Site(
        operation,
        overrides,
        hold=hold,
        devices=devices,
        streams=streams,
        weight=weight,
        attributes=attributes,
        code_function=code_function,
    )


def checked_options(  # noqa: PLR0913 - as track()
    where: str,
    hold: str,
    devices: Any,
    streams: Any,
    weight: Any,
    attributes: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the options of a site as they were given.

    Raises:
        ValueError: One cannot be used; names it.
    """
    if hold not in HOLDS:
        message = f"{where}: hold={hold!r} is not one of {', '.join(map(repr, HOLDS))}"
        raise ValueError(message)
    if not isinstance(weight, int) or isinstance(weight, bool) or weight < 1:
        message = f"{where}: weight={weight!r} must be an int of at least 1"
        raise ValueError(message)
    if devices is not None or streams is not None:
        cuda.check(devices, streams)
    return {"hold": hold, "devices": devices, "streams": streams, "weight": weight, "attributes": attributes}
