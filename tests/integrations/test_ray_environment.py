"""What a job's runtime environment says of the set-up of its workers; needs no cluster."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest

import gputrace
from gputrace import faults, settings as settings_module
from gputrace.integrations import ray_calls, ray_environment as environment, ray_patches, ray_worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOOK, USERS = environment.HOOK_VARIABLE, environment.USERS_HOOK_VARIABLE


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    environment.use({})
    yield
    environment.use({})


@pytest.mark.parametrize("users", ["", "their.module.hook", "ray_runtime_env_func::a2V5"])
def test_a_hook_of_the_users_becomes_a_variable_and_comes_back(users: str) -> None:
    given = {"env_vars": {"OTHER": "1", **({HOOK: users} if users else {})}, "pip": ["numpy"]}
    variables = environment.hook_into({**given})["env_vars"]
    assert variables[HOOK] == environment.HOOK
    assert variables.get(USERS, "") == users
    assert variables["OTHER"] == "1"
    back = environment.unhook({**given, "env_vars": variables})
    assert back["pip"] == ["numpy"]
    assert {**given["env_vars"], environment.SETTINGS_VARIABLE: variables[environment.SETTINGS_VARIABLE]} == (
        back["env_vars"]
    )


def test_the_hook_is_there() -> None:
    module, _, name = environment.HOOK.rpartition(".")
    assert getattr(importlib.import_module(module), name) is ray_worker.setup


def told(**given: Any) -> dict[str, str]:
    environment.use(given)
    variables: dict[str, str] = environment.hook_into({})["env_vars"]
    return variables


def test_workers_write_where_the_driver_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = str(tmp_path / "gputrace-data")
    assert environment.settings_of(told()) == {"data_dir": folder}
    assert environment.settings_of(told(service_name="app")) == {"data_dir": folder, "service_name": "app"}
    assert environment.settings_of(told(data_dir="mine")) == {"data_dir": str(tmp_path / "mine")}


@pytest.mark.parametrize("variable", ["GPUTRACE_DATA_DIR", "OTEL_EXPORTER_OTLP_ENDPOINT"])
def test_a_worker_that_is_told_where_to_send_writes_nowhere_else(variable: str) -> None:
    assert environment.settings_of({**told(), variable: "there"}) == {}
    assert environment.settings_of(told(endpoint="http://there")) == {"endpoint": "http://there"}


def test_a_worker_of_a_job_that_says_nothing_does_as_it_is_told_by_its_environment() -> None:
    assert environment.settings_of({}) == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data_folder": "x"}, "configure() has no setting data_folder"),
        ({"trust": print}, "cannot be sent to workers"),
    ],
)
def test_wrong_settings_are_refused_at_once(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match="instrument_ray: ") as raised:
        environment.use(given)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("module", "expected"), [("ray", True), ("ray.serve", True), ("raycast", False), (None, False)]
)
def test_what_is_rays(module: str | None, expected: bool) -> None:
    assert ray_calls.is_rays(module) is expected


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"export_interval": -1}, "export_interval"),
        ({"data_dir": 3}, "data_dir"),
        ({"features": 5}, "features"),
    ],
)
def test_a_setting_that_workers_could_not_use_is_refused_by_its_name(
    given: dict[str, Any], named: str
) -> None:
    with pytest.raises(settings_module.SettingError, match=named):
        environment.use(given)


@pytest.mark.requires("ray")
def test_instrumented_and_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.remote_function import RemoteFunction

    from gputrace.integrations.ray import RayInstrumentor

    before = RemoteFunction._remote
    RayInstrumentor().instrument()
    try:
        assert RemoteFunction._remote is not before
        assert RemoteFunction._remote.__wrapped__ is before
        gputrace.instrument_ray(service_name="app")
        assert RemoteFunction._remote.__wrapped__ is before
    finally:
        RayInstrumentor().uninstrument()
    assert RemoteFunction._remote is before


@pytest.mark.requires("ray")
def test_too_late_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    import ray

    faults.reset()
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray_patches, "apply", lambda patches: True)
    for _ in range(2):
        gputrace.instrument_ray()
    (line,) = caplog.messages
    assert "call it before ray.init()" in line


def test_the_environment_is_changed_for_a_block_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("GIVEN", "1")
    monkeypatch.delenv("MISSING", raising=False)
    with ray_worker._changed({"GIVEN": None, "MISSING": "2"}):
        assert ("GIVEN" in os.environ, os.environ["MISSING"]) == (False, "2")
    assert (os.environ["GIVEN"], "MISSING" in os.environ) == ("1", False)
