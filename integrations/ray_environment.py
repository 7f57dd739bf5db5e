"""The part of a job in the set-up of its workers: what its runtime environment says, and what ends with it.

The hook of gputrace goes into the job's runtime environment after Ray has taken it apart, so that a hook of
the user's has become a variable too: ours takes its place and runs it first. Nothing else is changed.
"""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

import gputrace
from gputrace import faults, settings
from gputrace.integrations import ray_calls
from gputrace.integrations.ray_patches import Patch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: What a worker runs before its first task.
HOOK = "gputrace.integrations.ray_worker.setup"
#: The variable in which Ray keeps a job's hook.
HOOK_VARIABLE = "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"
#: The user's hook, as Ray had put it there.
USERS_HOOK_VARIABLE = "GPUTRACE_RAY_SETUP_HOOK"
#: What workers give to ``configure``, and the folder for files where they are not told any, as JSON.
SETTINGS_VARIABLE = "GPUTRACE_RAY_SETTINGS"

#: Ray ends the workers of a job without notice when the job ends. By then those that are done have exported
#: what they had: see ``ray_worker``.
FAREWELL_S = 0.9

_PATHS = ("data_dir", "prices")
_DEFAULT_FOLDER = "gputrace-data"

_HOOKING = faults.contained("put a hook into the runtime environment of a job")
_PARTING = faults.contained("wait for the workers of a job")

_settings: dict[str, Any] = {}


def use(given: Mapping[str, Any]) -> None:
    """Give workers these settings.

    Args:
        given: As for ``configure``.

    Raises:
        TypeError: There is no such setting, or it cannot be sent to another process.
        SettingError: A value cannot be used; the message names the setting.
    """
    unknown = given.keys() - inspect.signature(gputrace.configure).parameters.keys()
    if unknown:
        raise TypeError(f"instrument_ray: configure() has no setting {', '.join(sorted(unknown))}")
    chosen = {name: value for name, value in given.items() if value is not None}
    sent = {
        name: str(Path(value).absolute())
        if name in _PATHS and isinstance(value, os.PathLike | str)
        else value
        for name, value in chosen.items()
    }
    try:
        json.dumps(sent)
    except TypeError as error:
        raise TypeError(
            f"instrument_ray: a setting cannot be sent to workers ({error}); call gputrace.configure() in a "
            "worker_process_setup_hook of your own"
        ) from error
    # Here, where somebody sees it: what a worker says of it, Ray may show to nobody.
    settings.read(**chosen)
    _settings.clear()
    _settings.update(sent)


def hook_into(runtime_env: Any) -> Any:
    """Let the workers of a job run gputrace's hook before the user's.

    Args:
        runtime_env: As Ray has taken it apart; changed in place.
    """
    variables = dict(runtime_env.get("env_vars") or {})
    users = variables.get(HOOK_VARIABLE)
    if users:
        variables[USERS_HOOK_VARIABLE] = users
    variables[HOOK_VARIABLE] = HOOK
    variables.setdefault(SETTINGS_VARIABLE, _settings_text())
    runtime_env["env_vars"] = variables
    return runtime_env


def unhook(runtime_env: Any) -> Any:
    """Return a runtime environment as it was before :func:`hook_into`; changed in place.

    A driver that another job has started may inherit one.
    """
    variables = dict(runtime_env.get("env_vars") or {})
    if variables.get(HOOK_VARIABLE) == HOOK:
        del variables[HOOK_VARIABLE]
        users = variables.pop(USERS_HOOK_VARIABLE, None)
        if users:
            variables[HOOK_VARIABLE] = users
        runtime_env["env_vars"] = variables
    return runtime_env


def _settings_text() -> str:
    return json.dumps({"settings": _settings, "folder": str(Path(_DEFAULT_FOLDER).absolute())})


def settings_of(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what a worker gives to ``configure``.

    Files go where the driver's would, unless the worker's own variables name a folder or an endpoint.
    """
    told = json.loads(environment.get(SETTINGS_VARIABLE) or "{}")
    chosen: dict[str, Any] = dict(told.get("settings", {}))
    own = ("GPUTRACE_DATA_DIR", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    said = chosen.keys() & {"data_dir", "endpoint"} or any(environment.get(name) for name in own)
    if "folder" in told and not said:
        chosen["data_dir"] = told["folder"]
    return chosen


def _around_connecting(original: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(original)

    def connect(*args: Any, **kwargs: Any) -> Any:
        with _HOOKING:
            given = parameters.bind(*args, **kwargs).arguments
            config = given.get("job_config")
            if _is_driver(given.get("mode")):
                ray_calls.hooked = ray_calls.called = False
                # Ray looks at hooks only where there is any runtime environment.
                if config is not None and not config.runtime_env:
                    config.set_runtime_env({"env_vars": {SETTINGS_VARIABLE: _settings_text()}})
        return original(*args, **kwargs)

    return connect


def _is_driver(mode: Any) -> bool:
    from ray._private.worker import SCRIPT_MODE

    return bool(mode == SCRIPT_MODE)


def _around_uploading(original: Callable[..., Any]) -> Callable[..., Any]:
    def upload(runtime_env: Any, worker: Any) -> Any:
        with _HOOKING:
            runtime_env = unhook(runtime_env)
        runtime_env = original(runtime_env, worker)
        with _HOOKING:
            runtime_env = hook_into(runtime_env)
            ray_calls.hooked = True
        return runtime_env

    return upload


def _around_disconnecting(original: Callable[..., Any]) -> Callable[..., Any]:
    def disconnect(*args: Any, **kwargs: Any) -> Any:
        with _PARTING:
            from ray._private.worker import global_worker

            if ray_calls.hooked and ray_calls.called and _is_driver(global_worker.mode):
                sleep(FAREWELL_S)
                ray_calls.hooked = False
        return original(*args, **kwargs)

    return disconnect


PATCHES = (
    Patch("ray._private.worker", "connect", ("node", "session_name", "mode"), _around_connecting),
    Patch(
        "ray._private.worker",
        "upload_worker_process_setup_hook_if_needed",
        ("runtime_env", "worker"),
        _around_uploading,
    ),
    Patch("ray._private.worker", "disconnect", ("exiting_interpreter",), _around_disconnecting),
)
