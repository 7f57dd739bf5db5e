"""Whether telemetry gets anywhere: the data folder is written to, receivers are sent an empty request."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

from gputrace.cli.doctor_findings import Section
from gputrace.exporters.probe import METRICS, SIGNALS, credential_provider, send_nothing

if TYPE_CHECKING:
    from pathlib import Path

    from gputrace.cli.doctor_apart import Answer
    from gputrace.exporters.probe import Reply
    from gputrace.settings import Settings

_LITTLE_BYTES = 100 * 2**20
_REDIRECTS = range(300, 400)
_DENIED = (401, 403)
_NOT_FOUND = (404, 405)
#: By what the innermost error says, in the order in which they are tried.
_REMEDIES = (
    ("Connection refused", "start the receiver, or correct the URL: OTLP over HTTP is usually port 4318"),
    ("CERTIFICATE", "name the authority's certificate in OTEL_EXPORTER_OTLP_CERTIFICATE"),
    ("SSL", "the receiver may not speak TLS: see whether the URL should begin with http://"),
    ("Name or service not known", "correct the host's name in the URL, or its DNS"),
    ("name resolution", "correct the host's name in the URL, or its DNS"),
    ("timed out", "see whether a firewall or network policy is in between"),
)
_NO_OTLP = "see its log, and whether the URL is that of OTLP over HTTP (usually port 4318; 4317 speaks gRPC)"


class Folder(NamedTuple):
    """The data folder.

    Attributes:
        path: Where it is.
        exists: Whether it is there.
        problem: Why nothing can be written into it.
        free_bytes: What is free on its disk.
    """

    path: str
    exists: bool
    problem: str | None = None
    free_bytes: int = 0


def try_folder(path: Path) -> Folder:
    """Write into a folder, or into that in which it would be made; nothing stays."""
    exists = path.exists()
    place = next(one for one in (path, *path.parents) if one.exists())
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        free_bytes = shutil.disk_usage(place).free
    except OSError as error:
        return Folder(str(path), exists, error.strerror or str(error))
    return Folder(str(path), exists, None, free_bytes)


def try_receiver(signal: str, endpoint: str | None, patience_s: float) -> Reply | None:
    """Send an empty request; for a process of its own, since it silences the logs of the exporter."""
    # They say the same in many more lines.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
    return send_nothing(signal, endpoint, patience_s)


def exporters_section(chosen: Settings, answers: dict[str, Answer]) -> Section:
    """Say where telemetry goes and whether it arrives.

    Args:
        chosen: The settings in force.
        answers: A `Folder` as `folder`, a `Reply` as `spans` and as `metrics`; each where there is one.
    """
    section = Section("exporters", "Where telemetry goes")
    section.facts = {"folder": None, "receivers": {}}
    if chosen.disabled:
        section.fail("OTEL_SDK_DISABLED is set: nothing is recorded", "unset it")
        return section
    works = {
        signal: _say_receiver(section, signal, answers[signal]) for signal in SIGNALS if signal in answers
    }
    folder_works = "folder" in answers and _say_folder(section, answers["folder"])
    section.facts = {
        "folder": _facts(answers.get("folder")),
        "receivers": {signal: _facts(answers[signal]) for signal in works},
    }
    # Totals are made of metrics: without them there is nothing to report, without spans no percentiles.
    if not folder_works and not works.get(METRICS, False):
        section.fail(
            "no metrics arrive anywhere", "see above; without OTEL_EXPORTER_OTLP_ENDPOINT files are written"
        )
    section.note("a program that sets OpenTelemetry up itself uses its own exporters instead")
    return section


def _say_folder(section: Section, answer: Answer) -> bool:
    folder: Folder | None = answer.value
    if folder is None:
        section.warn(f"the data folder: {answer.problem}", "see whether its disk answers")
        return False
    if folder.problem is not None:
        section.warn(
            f"files cannot be written to {folder.path}: {folder.problem}",
            "name another folder in GPUTRACE_DATA_DIR, or see to its rights and its disk",
        )
        return False
    there = "" if folder.exists else ", which is made when it is needed"
    section.ok(f"files can be written to {folder.path}{there}")
    if folder.free_bytes < _LITTLE_BYTES:
        section.warn(f"only {folder.free_bytes / 2**20:.0f} MiB are free there", "make room")
    return True


def _say_receiver(section: Section, signal: str, answer: Answer) -> bool:
    reply: Reply | None = answer.value
    provider = credential_provider(signal)
    if reply is None:
        section.warn(f"{signal}: {answer.problem or 'the exporter sent nothing'}", _NO_OTLP)
        return False
    where = f"{signal} to {reply.url}"
    if reply.status is None:
        section.warn(f"{where}: {reply.reason}", _remedy_for(reply.reason))
    elif reply.status in _DENIED and provider is not None:
        section.note(f"{where}: not tried as a program does, which logs in by {provider}")
        return True
    elif reply.status in _DENIED:
        section.warn(f"{where}: {reply.status} {reply.reason}", "log in by OTEL_EXPORTER_OTLP_HEADERS")
    elif reply.status in _NOT_FOUND:
        section.warn(
            f"{where}: {reply.status} {reply.reason}", "give the base URL: /v1/metrics is added to it"
        )
    elif reply.status in _REDIRECTS:
        section.warn(
            f"{where}: {reply.status} {reply.reason}: a redirect, which is not followed, so that all is lost",
            "give the URL that it leads to",
        )
    elif reply.is_page:
        section.warn(f"{where}: answers with a web page, which is no receiver of OTLP", _NO_OTLP)
    elif reply.status >= _REDIRECTS.stop:
        section.warn(f"{where}: {reply.status} {reply.reason}", _NO_OTLP)
    else:
        section.ok(f"{where}: accepted")
        return True
    return False


def _remedy_for(reason: str) -> str:
    return next((remedy for part, remedy in _REMEDIES if part in reason), _NO_OTLP)


def _facts(answer: Answer | None) -> dict[str, Any] | None:
    """Return a `Folder` or a `Reply` as JSON takes it."""
    return None if answer is None or answer.value is None else dict(answer.value._asdict())
