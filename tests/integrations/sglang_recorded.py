"""What the real scheduler of SGLang has run, recorded by tests/sglang_check/record.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.integrations.sglang_stand_in import (
    Algorithm,
    ForwardMode,
    Lengths,
    Req,
    SamplingParams,
    ScheduleBatch,
)

FOLDER = Path(__file__).resolve().parent / "sglang_recordings"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


def recording(name: str) -> dict[str, Any]:
    """The recording: requests and steps."""
    recorded: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return recorded


class Told:
    """The batches of a recording as SGLang's, with one object for each request."""

    def __init__(self, recorded: dict[str, Any]) -> None:
        self.reqs = {
            name: Req(name, "", [0] * facts["prompt"], SamplingParams())
            for name, facts in recorded["requests"].items()
        }
        self._drafts = Algorithm("NGRAM") if recorded.get("drafts") else Algorithm()

    def batch(self, step: dict[str, Any]) -> ScheduleBatch:
        """A step as SGLang's `ScheduleBatch`."""
        for name, output, *_ in step["rows"]:
            self.reqs[name].output_ids = [1] * output
        reqs = [self.reqs[row[0]] for row in step["rows"]]
        lengths = [row[2:] for row in step["rows"] if len(row) > 2]
        return ScheduleBatch(
            reqs,
            ForwardMode[step["mode"]],
            [one[0] for one in lengths],
            [one[1] for one in lengths],
            reqs[len(reqs) - step["decoding"] :],
            None if step["ends"] is None else Lengths(step["ends"]),
            spec_algorithm=self._drafts,
        )
