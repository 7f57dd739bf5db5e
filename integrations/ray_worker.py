"""The worker's part: set up before its first task, configured by it, and never long without having exported.

Ray ends workers in two ways. Where it lets them end (an actor that exits or is no longer referred to, an idle
worker, ``max_calls``) exit hooks run, and gputrace's exports everything. Where it does not (the end of the
job or of the node, ``ray.kill``) nothing runs. So what has ended is exported as soon as nothing more ends for
a moment; what is lost all the same is counted by the node's publisher.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from time import sleep
from typing import TYPE_CHECKING, Any

from opentelemetry import trace as trace_api
from opentelemetry.metrics import _internal as metrics_internal

import gputrace
from gputrace import faults
from gputrace.integrations import ray_calls, ray_environment, ray_execution, ray_patches, ray_serve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Work that pauses for so long is exported, s; and for so long after that nothing is.
QUIET_S = 0.25

_RESOURCE_VARIABLE = "OTEL_RESOURCE_ATTRIBUTES"
_DEVICES_VARIABLE = "CUDA_VISIBLE_DEVICES"
_NODE_VARIABLE = "GPUTRACE_NODE_DIR"
_NODE_PLACE = "{ray_node_id}"

_SETTING_UP = faults.contained("set up a worker of Ray's")
_CONFIGURING = faults.contained("configure a worker of Ray's")
_EXPORTING = faults.contained("export what a worker of Ray's has done")

_ended = threading.Event()
_beginning = threading.Lock()
_begun = False


class Cancelled(KeyboardInterrupt):
    """``ray.cancel`` has stopped a task, which Ray says with an interrupt."""


def setup() -> None:
    """Prepare a worker, then run the user's hook; Ray calls this before the first task.

    Raises:
        RuntimeError: The user's hook failed; with what Ray says of it.
    """
    with _SETTING_UP:
        if ray_patches.apply((*ray_calls.PATCHES, *ray_execution.PATCHES)):
            ray_calls.hooked = True
            ray_execution.before, ray_execution.after = _begin, _ended.set
            ray_serve.instrument()
        _place_node()
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _cancel)
    users = os.environ.get(ray_environment.USERS_HOOK_VARIABLE)
    if users:
        from ray._private.runtime_env.setup_hook import load_and_execute_setup_hook

        problem = load_and_execute_setup_hook(users)
        if problem is not None:
            raise RuntimeError(problem)


def _cancel(*_: Any) -> None:
    raise Cancelled


def _place_node() -> None:
    """Let the processes of one Ray node meet, where several nodes share a machine and the user says so."""
    folder = os.environ.get(_NODE_VARIABLE, "")
    if _NODE_PLACE in folder:
        os.environ[_NODE_VARIABLE] = folder.replace(_NODE_PLACE, _node_id())


def _node_id() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def _begin() -> None:
    """Configure this worker, once, on the first call that it executes."""
    global _begun  # noqa: PLW0603 - once a process
    if _begun:
        return
    with _beginning:
        if _begun:
            return
        _begun = True
        with _CONFIGURING:
            threading.Thread(target=_export, name="gputrace-ray", daemon=True).start()
            # Whoever has set both has done so in a hook of the user's.
            if trace_api._TRACER_PROVIDER is None or metrics_internal._METER_PROVIDER is None:  # noqa: SLF001
                with _changed(_variables()):
                    gputrace.configure(**ray_environment.settings_of(os.environ))


@contextmanager
def _changed(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Change the environment in the block alone; None takes a variable away."""
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _variables() -> dict[str, str | None]:
    """Return the environment in which a worker is configured, where it differs from that of its tasks.

    A resource says which worker on which node this is; beyond, a child process would inherit it and pass
    for its parent. A task without a GPU may be shown none, and the next one in this worker have one.
    """
    import ray

    entries = [entry for entry in os.environ.get(_RESOURCE_VARIABLE, "").split(",") if entry.strip()]
    given = [entry for entry in entries if entry.split("=")[0].strip() != "service.instance.id"]
    worker_id = ray.get_runtime_context().get_worker_id()
    ours = [f"service.instance.id={worker_id}", f"ray.node.id={_node_id()}"]
    variables: dict[str, str | None] = {_RESOURCE_VARIABLE: ",".join([*given, *ours])}
    if os.environ.get(_DEVICES_VARIABLE) == "":
        variables[_DEVICES_VARIABLE] = None
    return variables


def _export() -> None:
    """Export whenever calls have ended and no more do, for as long as the process lives."""
    while True:
        _ended.wait()
        while _ended.is_set():
            _ended.clear()
            sleep(QUIET_S)
        with _EXPORTING:
            gputrace.flush()
        sleep(QUIET_S)
