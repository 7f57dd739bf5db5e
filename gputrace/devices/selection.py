"""On which device a call is timed.

Without a GPU the process itself stands in as a device and marks are plain
clock readings. On a machine with a GPU a call is timed with events on torch's
current device, once CUDA is initialised in this process; until then on none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputrace.devices import cuda

if TYPE_CHECKING:
    from gputrace.devices.base import Timer

#: Whether calls of this process are timed on GPUs rather than on the host.
gpu = False


class Untimed:
    """Stands for a call that no device is charged for.

    Attributes:
        began_uninitialised: CUDA was not initialised at entry. Where it is at
            the end, the call has used a device unseen and counts as unmeasured.
    """

    __slots__ = ("began_uninitialised",)

    estimated = False

    def __init__(self, *, began_uninitialised: bool) -> None:
        self.began_uninitialised = began_uninitialised

    def mark(self) -> int:
        """Read the host's clock, ns, so that the call still has a duration."""
        return cuda.host_clock()()


_CONTAINER = Untimed(began_uninitialised=False)


def timer_for(hold: str, devices: Any, streams: Any) -> Timer | Untimed:
    """Return what times a call that enters now, on a machine with a GPU.

    Args:
        hold: The call's ``hold``; a container is charged on nothing.
        devices: Devices given explicitly, None for the current one.
        streams: Side streams to time as well.
    """
    if hold == "none":
        return _CONTAINER
    timer = cuda.timer(devices, streams)
    return Untimed(began_uninitialised=True) if timer is None else timer


def choose() -> None:
    """Decide for this process whether calls are timed on GPUs."""
    global gpu  # noqa: PLW0603 - read on every call
    gpu = cuda.gpu_expected()
