"""What starts the stack, as far as it can be checked without starting it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gputrace.grafana import output

FOLDER = Path(__file__).resolve().parents[2] / "grafana"


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((FOLDER / name).read_text())


COMPOSE = read("compose.yaml")
SERVICES = COMPOSE["services"]


def test_images_are_pinned():
    assert set(SERVICES) == {"grafana", "prometheus", "tempo", "collector"}
    for service in SERVICES.values():
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", service["image"])


def test_only_the_loopback_reaches_it():
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_what_is_mounted_is_there():
    written = {*output.static(), *output.generated()}
    for service in SERVICES.values():
        assert set(service.get("depends_on", [])) <= set(SERVICES)
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./"):
                name = source.removeprefix("./")
                assert name in written or any(path.startswith(f"{name}/") for path in written)
            else:
                assert source in COMPOSE["volumes"]


def test_boards_are_provisioned_from_where_they_are_mounted():
    (provider,) = read("provisioning/dashboards/gputrace.yaml")["providers"]
    assert provider["type"] == "file"
    assert f"./dashboards:{provider['options']['path']}:ro" in SERVICES["grafana"]["volumes"]
    assert "./provisioning:/etc/grafana/provisioning:ro" in SERVICES["grafana"]["volumes"]


def test_data_sources_point_at_services_and_at_each_other():
    sources = {one["uid"]: one for one in read("provisioning/datasources/gputrace.yaml")["datasources"]}
    for source in sources.values():
        host = re.fullmatch(r"http://(\w+):\d+", source["url"])
        assert host
        assert host[1] in SERVICES
    settings = sources["prometheus"]["jsonData"]
    assert settings["timeInterval"] == "60s"
    (exemplars,) = settings["exemplarTraceIdDestinations"]
    assert exemplars["datasourceUid"] in sources
    # One `$` would be taken for a variable of the environment.
    assert exemplars["urlDisplayLabel"].endswith("$${__value.raw}")


def test_every_pipeline_of_the_collector_is_whole():
    collector = read("collector.yaml")
    for pipeline in collector["service"]["pipelines"].values():
        for kind in ("receivers", "processors", "exporters"):
            assert pipeline[kind]
            assert set(pipeline[kind]) <= set(collector[kind])
    endpoints = [one["endpoint"] for one in collector["exporters"].values()]
    hosts = {re.sub(r"^https?://", "", one).partition(":")[0] for one in endpoints}
    assert hosts <= set(SERVICES)


def test_prometheus_takes_what_is_sent_to_it():
    command = SERVICES["prometheus"]["command"]
    assert {"--web.enable-otlp-receiver", "--enable-feature=exemplar-storage"} <= set(command)
    assert read("collector.yaml")["exporters"]["otlphttp/prometheus"]["endpoint"].endswith("/api/v1/otlp")
    assert read("prometheus/prometheus.yml")["rule_files"] == ["rules/gputrace-*.yml"]


@pytest.mark.parametrize("name", [name for name in output.generated() if name.endswith(".yml")])
def test_rule_files_are_yaml_that_others_read_too(name):
    """Promtool reads them elsewhere; operators and Grafana with parsers of their own."""
    (*groups,) = yaml.safe_load(output.generated()[name])["groups"]
    for group in groups:
        assert set(group) == {"name", "interval", "rules"}
        for rule in group["rules"]:
            assert set(rule) in ({"record", "expr"}, {"alert", "expr", "for", "labels", "annotations"})


@pytest.fixture
def stack(tmp_path):
    """Run the script beside a made-up Prometheus, with the port that it is to take."""

    def run(port: int, prometheus: str) -> subprocess.CompletedProcess[str]:
        server = tmp_path / "bin" / "prometheus"
        server.parent.mkdir()
        server.write_text(f"#!/bin/sh\n{prometheus}\n")
        server.chmod(0o755)
        variables = {**os.environ, "GPUTRACE_SERVERS": str(tmp_path), "STACK_PORT": str(port)}
        return subprocess.run(
            ["bash", str(FOLDER / "stack.sh"), str(tmp_path / "data")],
            env=variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    return run


HELPS = 'case "$*" in *--help*) echo web.enable-otlp-receiver; exit 0;; esac'


def test_a_port_that_is_taken_is_said_before_all_else(stack):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = stack(port, HELPS)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"Something listens on 127.0.0.1:{port} already" in done.stderr
    assert "STACK_PORT" in done.stderr


def test_a_server_that_ends_says_why(stack):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    done = stack(port, f"{HELPS}; echo 'no space left'; exit 3")
    assert done.returncode == 1
    assert "has ended (status 3)" in done.stderr
    assert "no space left" in done.stderr
