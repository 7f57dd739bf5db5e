"""What the real scheduler of SGLang runs, written down by a plugin of its own beside gputrace."""

from __future__ import annotations

import json
import os
from typing import Any

#: Where it is written: this and the number of the process.
VARIABLE = "SGLANG_CHECK_RECORD"

_seen: dict[str, Any] = {}


def register() -> None:
    """Stand around what runs batches and around what tells the front end of their results."""
    if not os.environ.get(VARIABLE):
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    managers = "sglang.srt.managers"
    HookRegistry.register(f"{managers}.scheduler.Scheduler.run_batch", running, HookType.BEFORE)
    HookRegistry.register(
        f"{managers}.scheduler_components.output_streamer.SchedulerOutputStreamer.stream_output",
        streaming,
        HookType.BEFORE,
    )
    HookRegistry.register(
        f"{managers}.scheduler_components.output_sender.SenderWrapper.send_output",
        answering,
        HookType.BEFORE,
    )


def _write(**told: Any) -> None:
    with open(f"{os.environ[VARIABLE]}.{os.getpid()}", "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write(json.dumps(told, separators=(",", ":")) + "\n")


def running(_: Any, batch: Any, *__: Any, **___: Any) -> None:
    """Write what a batch is, before anything runs."""
    extends = not batch.forward_mode.is_decode()
    rows = []
    for index, req in enumerate(batch.reqs):
        if req.rid not in _seen:
            _seen[req.rid] = req
            _write(new=req.rid, prompt=len(req.origin_input_ids))
        lengths = (
            [batch.prefix_lens[index], batch.extend_lens[index]] if extends and batch.prefix_lens else []
        )
        rows.append([req.rid, len(req.output_ids), *lengths])
    ends = None if extends or batch.seq_lens_cpu is None else batch.seq_lens_cpu.tolist()
    decoding = len(batch.decoding_reqs or ()) if extends else 0
    _write(mode=batch.forward_mode.name, rows=rows, ends=ends, decoding=decoding)


def streaming(_: Any, reqs: Any, *__: Any, **___: Any) -> None:
    """Write what became of requests that have ended."""
    for req in reqs:
        if req.finished_reason is not None:
            _ended(req, req.finished_reason.to_json()["type"])


def answering(_: Any, output: Any, recv_obj: Any = None) -> None:
    """Write what became of requests that ended while they waited."""
    if type(output).__name__ == "AbortReq":
        _ended(recv_obj, "abort")


def _ended(req: Any, how: str) -> None:
    if _seen.get(req.rid) is not None:
        _seen[req.rid] = None
        _write(
            end=req.rid,
            how=how,
            output=len(req.output_ids_through_stop),
            cached=req.cached_tokens,
            retractions=req.retraction_count,
        )
