from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gputrace.demo.folder import SERVICE_NAME, prepare

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, service: str, *, indent: str = "") -> Path:
    attributes = [{"key": "service.name", "value": {"stringValue": service}}]
    line = json.dumps({"resourceMetrics": [{"resource": {"attributes": attributes}}]})
    path.write_text(f"{indent}{line}\n{line}\n")
    return path


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert prepare(folder) == folder
    assert folder.is_dir()


def test_an_earlier_demos_files_are_removed(tmp_path: Path) -> None:
    earlier = [write(tmp_path / name, SERVICE_NAME) for name in ("metrics-1.jsonl", "spans-1.jsonl")]
    assert prepare(tmp_path) == tmp_path
    assert not any(path.exists() for path in earlier)


def test_foreign_records_stay_and_are_not_mixed_in(tmp_path: Path) -> None:
    earlier = write(tmp_path / "metrics-1.jsonl", SERVICE_NAME)
    foreign = [
        write(tmp_path / "metrics-2.jsonl", "support-api"),
        write(tmp_path / "metrics-3.jsonl", f"{SERVICE_NAME}-of-mine"),
    ]
    (tmp_path / "notes.jsonl").write_text(f"I like {SERVICE_NAME}\n")
    fresh = prepare(tmp_path)
    assert fresh.parent == tmp_path
    assert list(fresh.iterdir()) == []
    assert all(path.exists() for path in foreign)
    assert not earlier.exists()
    assert (tmp_path / "notes.jsonl").exists()
    assert prepare(tmp_path) != fresh


def test_files_that_a_report_does_not_read_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "folder.jsonl").mkdir()
    assert prepare(tmp_path) == tmp_path
    assert {path.name for path in tmp_path.iterdir()} == {"README.md", "empty.jsonl", "folder.jsonl"}
