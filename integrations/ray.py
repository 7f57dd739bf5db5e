"""Ray: tasks and actors continue the trace of whoever calls them, and bill the same feature.

``gputrace.instrument_ray()`` before ``ray.init()``; or no code at all with ``opentelemetry-instrument``, by
whose entry points this module is found. Ray's own tracing is neither used nor needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

from gputrace import faults
from gputrace.integrations import ray_calls, ray_environment, ray_patches, ray_serve

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_INSTRUMENTING = faults.contained("instrument Ray")
_RESTORING = faults.contained("restore Ray")

_PATCHES = (*ray_calls.PATCHES, *ray_environment.PATCHES)


class RayInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Instruments the jobs that this process starts from now on, and their workers."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return what must be installed."""
        return ("ray >= 2.60",)

    def _instrument(self, **options: Any) -> None:
        # Anything but an ImportError would end all of auto-instrumentation.
        with _INSTRUMENTING:
            instrument({name: value for name, value in options.items() if name != "skip_dep_check"})

    def _uninstrument(self, **_: Any) -> None:
        with _RESTORING:
            ray_serve.uninstrument()
            ray_patches.restore(_PATCHES)
            ray_calls.hooked = False


def instrument(settings: Mapping[str, Any]) -> None:
    """Instrument Ray in this process; see ``gputrace.instrument_ray``.

    Raises:
        ImportError: Ray is not installed.
        TypeError: A setting cannot be used.
    """
    import ray

    ray_environment.use(settings)
    if not ray_patches.apply(_PATCHES):
        return
    ray_serve.instrument()
    if ray.is_initialized() and not ray_calls.hooked:
        faults.log_once(
            "ray-late",
            "gputrace.instrument_ray(): Ray has been initialised already, and the workers of this job know "
            "nothing of gputrace; call it before ray.init()",
        )
