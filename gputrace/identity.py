"""Who this process is: the identity under which its telemetry is told apart."""

from __future__ import annotations

import socket
import uuid

from opentelemetry import metrics as metrics_api, trace as trace_api

_SERVICE_INSTANCE_ID = "service.instance.id"

_instance_id: str | None = None


def instance_id() -> str:
    """Return ``service.instance.id`` of this process, settled when first asked for.

    That of the OpenTelemetry providers which are set, so that what gputrace says
    of this process joins with everything else that is known of it; else a new one.
    """
    global _instance_id  # noqa: PLW0603 - one identity a process
    if _instance_id is None:
        _instance_id = _of_providers() or str(uuid.uuid4())
    return _instance_id


def settled() -> str | None:
    """Return the identity if anything was published under it already, or a provider has one."""
    return _instance_id or _of_providers()


def _of_providers() -> str | None:
    for provider in (trace_api._TRACER_PROVIDER, metrics_api.get_meter_provider()):  # noqa: SLF001 - None tells that none is set
        # Tracer providers show their resource, meter providers keep it in their configuration.
        resource = getattr(provider, "resource", None) or getattr(
            getattr(provider, "_sdk_config", None), "resource", None
        )
        value = getattr(resource, "attributes", {}).get(_SERVICE_INSTANCE_ID)
        if value:
            return str(value)
    return None


def use(instance_id: str) -> None:
    """Say who this process is, in the place of all others who could."""
    global _instance_id  # noqa: PLW0603 - one identity a process
    _instance_id = instance_id


def reset() -> None:
    """Give a forked child an identity of its own.

    The SDK gives the resources of its providers a new one there too.
    """
    global _instance_id  # noqa: PLW0603 - one identity a process
    _instance_id = None


def host_name() -> str:
    """Return the name of this machine."""
    return socket.gethostname()
