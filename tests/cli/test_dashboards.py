"""`gputrace dashboards`: what an installed gputrace writes."""

from __future__ import annotations

from pathlib import Path

from gputrace.cli import main
from gputrace.grafana import output, rules

ROOT = Path(__file__).resolve().parents[2]


def test_it_writes_what_the_repository_holds(tmp_path, capsys):
    assert main(["dashboards", str(tmp_path)]) == 0
    written = {
        path.relative_to(tmp_path).as_posix(): path.read_text()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    runbook = written.pop("runbooks.md")
    assert runbook == (ROOT / "docs/runbooks.md").read_text()
    assert set(written) == {*output.STATIC, *output.generated()}
    assert all((ROOT / "grafana" / name).read_text() == text for name, text in written.items())
    assert f"{len(written) + 1} of them written anew" in capsys.readouterr().out


def test_it_touches_only_what_differs(tmp_path, capsys):
    main(["dashboards", str(tmp_path)])
    board = tmp_path / "dashboards/gputrace-spend.json"
    other = tmp_path / "dashboards/gputrace-fleet.json"
    board.write_text("{}")
    before = other.stat().st_mtime_ns
    capsys.readouterr()
    assert main(["dashboards", str(tmp_path)]) == 0
    assert ", 1 of them written anew" in capsys.readouterr().out
    assert board.read_text() == output.generated()["dashboards/gputrace-spend.json"]
    assert other.stat().st_mtime_ns == before


def test_alerts_lead_where_they_are_told_to(tmp_path):
    links = ["--grafana-url", "https://grafana.example/", "--runbook-url", "https://docs.example/runbooks"]
    assert main(["dashboards", str(tmp_path), *links]) == 0
    text = (tmp_path / "prometheus/rules/gputrace-5-alerts.yml").read_text()
    assert text.count('dashboard_url: "https://grafana.example/d/gputrace-') == len(rules.ALERTS)
    assert 'runbook_url: "https://docs.example/runbooks#gputracepricemissing"' in text


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    assert main(["dashboards", str(file)]) == 1
    assert f"cannot write to {file}" in capsys.readouterr().err
