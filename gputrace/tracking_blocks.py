"""``span``: how user code says that a block uses a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputrace import call as calls
from gputrace.attribution import tolerated_fields
from gputrace.call_blocks import OpenCalls
from gputrace.call_site import checked_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from gputrace.call import Call

_BLOCK_SITES_LIMIT = 1024
_block_sites: dict[tuple[Any, ...], calls.Site] = {}


class span:  # noqa: N801 - used like a function
    """Track a block of code; the same arguments as :func:`track`, the operation first.

    A block cannot see its own suspensions: with ``await`` inside, it holds the
    device throughout, unless it stands in a tracked coroutine or generator,
    whose suspensions then count for the block too. ``hold="none"`` makes a
    container that only sums what is tracked in it.

    Args:
        operation: Name of the work.
        feature: Product feature that is billed; else that of the enclosing scope.
        model: Model that does the work.
        variant: Variant of the model.
        stage: Stage of a cascade or pipeline.
        tenant: Customer that is billed.
        hold: ``steps``, ``call`` or ``none``.
        devices: Devices that the block uses; the current one by default.
        streams: Side streams that are timed as well as the current one.
        weight: Share of a contended device that an outermost call is charged, an int >= 1.
        attributes: More attributes for the span; never on metrics.

    Raises:
        ValueError: An argument cannot be used; names it.
    """

    __slots__ = ("_calls", "_site")

    def __init__(  # noqa: PLR0913 - as track()
        self,
        operation: str,
        *,
        feature: str | None = None,
        model: str | None = None,
        variant: str | None = None,
        stage: str | None = None,
        tenant: str | None = None,
        hold: str = calls.HOLD_STEPS,
        devices: Any = None,
        streams: Sequence[Any] | None = None,
        weight: int = 1,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        key = (operation, feature, model, variant, stage, tenant, hold, weight)
        options = (hold, devices, streams, weight, attributes)
        plain = devices is None and streams is None and attributes is None and weight.__class__ is int
        try:
            site = _block_sites.get(key) if plain else None
        except TypeError:
            # Something that came with a request has no hash.
            site = None
        if site is None:
            given = {"feature": feature, "tenant": tenant, "model": model, "variant": variant, "stage": stage}
            site = _block_site(operation, given, checked_options("span", *options))
            # Equal is not the same: a 1 must not find what was kept for a True.
            if plain and all(part is None or part.__class__ is str for part in key[:-1]):
                if len(_block_sites) >= _BLOCK_SITES_LIMIT:
                    _block_sites.clear()
                _block_sites[key] = site
        self._site = site
        self._calls = OpenCalls()

    def __enter__(self) -> Call:
        call = calls.enter(self._site)
        self._calls.entered(call)
        return call

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        call = self._calls.left()
        if call is not None:
            calls.leave(call, error, block=True)


def _block_site(operation: str, given: Mapping[str, Any], options: Mapping[str, Any]) -> calls.Site:
    fields = tolerated_fields({"operation": operation, **given}, "span")
    return calls.Site(fields.pop("operation", "span"), fields, **options)
