"""A Prometheus of the benchmark's own: filled once, then asked."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

_READY_S = 300.0
_ANSWER_S = 300.0
_CONFIGURATION = {
    "global": {"evaluation_interval": "1m"},
    "storage": {"tsdb": {"out_of_order_time_window": "2h"}},
}


class Prometheus:
    """A server on a port of its own, that takes samples by remote write.

    Args:
        binary: The program.
        folder: Where its data and its log are.
    """

    def __init__(self, binary: Path, folder: Path) -> None:
        self._binary = binary
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self, rules: Path | None = None) -> None:
        """Start it and wait until it answers.

        Args:
            rules: A folder of rule files; nothing is evaluated without.

        Raises:
            RuntimeError: It does not.
        """
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        files = {"rule_files": [f"{rules.resolve()}/*.yml"]} if rules else {}
        configuration = self._folder / "prometheus.yml"
        configuration.write_text(json.dumps(_CONFIGURATION | files), encoding="utf-8")  # JSON is YAML
        command = [
            str(self._binary),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            "--storage.tsdb.retention.time=400d",
            f"--web.listen-address=127.0.0.1:{port}",
            "--web.enable-remote-write-receiver",
        ]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline_s = time.monotonic() + _READY_S
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/-/ready", timeout=5):  # noqa: S310
                return
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"{self._binary} does not start: see {self._folder / 'log'}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Stop it and wait until it has written everything."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_READY_S)
            self._process = None

    def forget(self) -> None:
        """While it is stopped, put its files out of the system's memory, as far as the system does so."""
        for path in (self._folder / "data").rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def ask(self, path: str, **parameters: str) -> Any:
        """Return what it answers.

        Args:
            path: Below `/api/v1/`.
            parameters: Of the query.

        Raises:
            RuntimeError: It answers with an error.
        """
        body = urllib.parse.urlencode(parameters).encode() if parameters else None
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}", body, timeout=_ANSWER_S) as answer:  # noqa: S310
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            said = error.read(500).decode(errors="replace")
            raise RuntimeError(f"{parameters} is answered with {error.code}: {said}") from error

    def computed_s(self) -> float:
        """Return for how many seconds it has computed since it was started; 0 where that is not known.

        Unlike the time on the wall it hardly depends on what else the machine does.
        """
        if self._process is None or not sys.platform.startswith("linux"):
            return 0.0
        fields = (
            Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        )
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def settled(self, before_s: float) -> None:
        """Wait until what is older is in blocks on the disk, as it would be if it had come over the days.

        Args:
            before_s: Unix time.
        """
        while self.ask("status/tsdb")["headStats"]["minTime"] / 1000 < before_s:
            time.sleep(2)

    def bytes_on_disk(self) -> int:
        """Return how much its blocks take."""
        blocks = (path for path in (self._folder / "data").rglob("chunks/*") if path.is_file())
        return sum(path.stat().st_size for path in blocks)
