"""What the real scheduler of vLLM told its workers, recorded by tests/vllm_check/record.py."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

FOLDER = Path(__file__).resolve().parent / "vllm_recordings"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


def recording(name: str) -> dict[str, Any]:
    """The recording: requests and steps."""
    recorded: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return recorded


def output(step: dict[str, Any], **more: Any) -> Any:
    """A step as vLLM's `SchedulerOutput`."""
    return SimpleNamespace(
        scheduled_new_reqs=[new(*one) for one in step.get("new", ())],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=[one[0] for one in step.get("known", ())],
            num_computed_tokens=[one[1] for one in step.get("known", ())],
            num_output_tokens=[one[2] for one in step.get("known", ())],
            resumed_req_ids=set(step.get("resumed", ())),
        ),
        num_scheduled_tokens=step.get("scheduled", {}),
        total_num_scheduled_tokens=sum(step.get("scheduled", {}).values()),
        scheduled_spec_decode_tokens={name: [0] * count for name, count in step.get("drafts", {}).items()},
        finished_req_ids=set(step.get("finished", ())),
        **more,
    )


def new(name: str, prompt: int, prefill: int | None, computed: int, *, extra: Any = None, **more: Any) -> Any:
    """A request as vLLM's `NewRequestData`."""
    given = {
        "req_id": name,
        "prompt_token_ids": [0] * prompt,
        "prompt_embeds": None,
        "prefill_token_ids": None if prefill is None else [0] * prefill,
        "num_computed_tokens": computed,
        "sampling_params": SimpleNamespace(extra_args=extra),
        "pooling_params": None,
        "lora_request": None,
    }
    return SimpleNamespace(**{**given, **more})
