"""Looks over the shoulder of the hook in a worker of vLLM: what each step was told, and how long it took.

Found by vLLM as a plugin of its own; it wraps what the modules of gputrace call, in any order.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

_FOLDER = "SERVE_CHECK_STEPS"
#: Breaks the member rule at every third step, where it is set.
_FAULT = "SERVE_CHECK_FAULT"


def register() -> None:
    """Begin to watch, in each process of vLLM."""
    folder = os.environ.get(_FOLDER)
    if not folder:
        return
    import gputrace
    from gputrace.integrations import vllm_members, vllm_scheduler

    watcher = _Watcher(Path(folder))
    whom, enter, leave = vllm_members.Members.of, gputrace.step.__enter__, gputrace.step.__exit__
    left = vllm_members.Members.left

    def of(self: Any, output: Any) -> Any:
        if os.environ.get(_FAULT):
            watcher.broken += 1
            if watcher.broken % 3 == 0:
                message = "a fault that was put here"
                raise RuntimeError(message)
        told = whom(self, output)
        watcher.told(self, output, told[1])
        return told

    def left_(self: Any, output: Any) -> Any:
        gone = left(self, output)
        watcher.ended(gone, vllm_scheduler.ended(output))
        return gone

    def entered(self: Any) -> Any:
        call = enter(self)
        watcher.call = call
        return call

    def left_step(self: Any, *how: Any) -> None:
        leave(self, *how)
        watcher.over()

    vllm_members.Members.of = of  # type: ignore[method-assign]
    vllm_members.Members.left = left_  # type: ignore[method-assign]
    gputrace.step.__enter__ = entered  # type: ignore[method-assign]
    gputrace.step.__exit__ = left_step  # type: ignore[method-assign]


class _Watcher:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: Any = None
        self._step: dict[str, Any] = {}
        self.call: Any = None
        self.broken = 0

    def _write(self, row: dict[str, Any]) -> None:
        if self._file is None:
            self._file = (self._folder / f"{os.getpid()}.jsonl").open("w")
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    def told(self, members: Any, output: Any, work: Any) -> None:
        names = [one.req_id for one in output.scheduled_new_reqs]
        names += output.scheduled_cached_reqs.req_ids
        served = [members.known[name].served for name in names]
        self._step = {
            "scheduled": output.total_num_scheduled_tokens,
            "counts": [output.num_scheduled_tokens[name] for name in names],
            "names": names,
            "work": [list(one) for one in work],
            "features": [None if one is None else one.attribution.feature for one in served],
            "tenants": [None if one is None else one.attribution.tenant for one in served],
            "drafts": sum(map(len, output.scheduled_spec_decode_tokens.values())),
            "resumed": len(output.scheduled_cached_reqs.resumed_req_ids),
        }

    def ended(self, gone: Any, how: Any) -> None:
        for name, progress in gone.items():
            row = {"ended": name, "prompt": progress.prompt, "cached": progress.cached}
            known = how.get(name)
            self._write({**row, "how": None if known is None else list(known)})

    def over(self) -> None:
        start, end = self.call.marks[0], self.call.marks[-1]
        self._write({**self._step, "operation": self.call.site.operation, "ns": end - start})
        self._step = {}
