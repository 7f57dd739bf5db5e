"""Records what the real scheduler of vLLM tells its workers, without an engine or a model, for `make test`.

    python tests/vllm_check/record.py tests/integrations/vllm_recordings

Run it with each version in turn; it needs vLLM's Python part alone. What the model would answer is made up:
one token a step, and of drafts some accepted. 0.32 and 0.33 tell the same.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import tempfile
from collections import deque
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import model

_BLOCK = 16
_DRAFTS = 3


def main() -> None:
    """Record every combination of runner, scheduling and drafts that the version has."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    import vllm

    with tempfile.TemporaryDirectory() as made:
        tiny = model.make(Path(made))
        for newer, ahead, drafts in itertools.product((False, True), (False, True), (0, _DRAFTS)):
            if ahead and drafts:
                # Drafts are only known once the step is over: they are made on the device there.
                continue
            recorded = Recording(tiny, newer=newer, ahead=ahead, drafts=drafts).run()
            name = (
                f"{vllm.__version__.split('+')[0]}-{'v2' if newer else 'v1'}-{'async' if ahead else 'sync'}"
            )
            name += "-drafts" if drafts else ""
            print(name, len(recorded["steps"]), "steps", recorded["preemptions"], "preemptions")
            (folder / f"{name}.json").write_text(_as_lines(recorded))


def _as_lines(recorded: dict[str, Any]) -> str:
    steps = ",\n".join(json.dumps(step, separators=(",", ":")) for step in recorded.pop("steps"))
    rest = json.dumps(recorded, separators=(",", ":"))[:-1]
    return f'{rest},"steps":[\n{steps}\n]}}\n'


class Recording:
    """One run of a scheduler with too few blocks for what it is given.

    Args:
        tiny: Folder of the model's configuration.
        newer: For the newer of the two model runners.
        ahead: Each step is scheduled before the one before it is over.
        drafts: Tokens that are guessed for each request and step.
    """

    def __init__(self, tiny: Path, *, newer: bool, ahead: bool, drafts: int) -> None:
        self._dice = random.Random(11)
        self._ahead = ahead
        self._drafts = drafts
        self._scheduler = _scheduler(tiny, newer=newer, ahead=ahead, drafts=drafts)
        self._requests = _requests(self._dice)
        self._left = deque(self._requests)
        self._steps: list[dict[str, Any]] = []

    def run(self) -> dict[str, Any]:
        """Return the steps, and what became of each request."""
        flying: deque[Any] = deque()
        for number in range(1_000):
            # Some come while others are served.
            while self._left and (number % 3 == 0 or number == 0):
                self._scheduler.add_request(self._left.popleft())
                if number and len(self._left) % 2:
                    break
            if number == 12:
                self._abort()
            if not self._scheduler.has_requests() and not flying:
                break
            output = self._scheduler.schedule()
            self._steps.append(_step(output))
            flying.append(output)
            while flying and (len(flying) > self._ahead or not output.total_num_scheduled_tokens):
                self._finish(flying.popleft())
        while flying:
            self._finish(flying.popleft())
        return {
            "requests": {
                one.request_id: {
                    "prompt": one.num_prompt_tokens,
                    "output": one.num_output_tokens,
                    "preemptions": one.num_preemptions,
                    "status": one.status.name,
                }
                for one in self._requests
            },
            "preemptions": sum(one.num_preemptions for one in self._requests),
            "steps": self._steps,
        }

    def _abort(self) -> None:
        from vllm.v1.request import RequestStatus

        self._scheduler.finish_requests([self._requests[1].request_id], RequestStatus.FINISHED_ABORTED)

    def _finish(self, output: Any) -> None:
        from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

        names = list(output.num_scheduled_tokens)
        computed = _computed(output)
        sampled = [self._sampled(name, computed[name], output) for name in names]
        self._scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: at for at, name in enumerate(names)},
                sampled_token_ids=sampled,
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=[],
            ),
        )
        if self._drafts:
            guessed = [[self._token() for _ in range(self._drafts)] if one else [] for one in sampled]
            self._scheduler.update_draft_token_ids(DraftTokenIds(names, guessed))

    def _sampled(self, name: str, computed: int, output: Any) -> list[int]:
        request = self._scheduler.requests.get(name)
        if request is None:
            return []
        drafts = len(output.scheduled_spec_decode_tokens.get(name, ()))
        reached = computed + output.num_scheduled_tokens[name] - drafts
        if reached < request.num_tokens:
            # Still on its way through its prompt, or again through what it had been given before.
            return []
        return [self._token() for _ in range(1 + self._dice.randint(0, drafts))]

    def _token(self) -> int:
        return self._dice.randrange(10, 3_000)


def _scheduler(tiny: Path, *, newer: bool, ahead: bool, drafts: int) -> Any:
    import torch
    from vllm.config import (
        CacheConfig,
        DeviceConfig,
        ModelConfig,
        SchedulerConfig,
        SpeculativeConfig,
        VllmConfig,
    )
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    VllmConfig.use_v2_model_runner = property(lambda _: False)
    options: dict[str, Any] = {}
    if drafts:
        options["speculative_config"] = SpeculativeConfig(
            method="ngram", num_speculative_tokens=drafts, prompt_lookup_max=4, prompt_lookup_min=1
        )
    config = VllmConfig(
        scheduler_config=SchedulerConfig(
            max_num_seqs=8,
            max_num_batched_tokens=64,
            max_model_len=512,
            enable_chunked_prefill=True,
            async_scheduling=ahead,
            is_encoder_decoder=False,
        ),
        model_config=ModelConfig(model=str(tiny), dtype="float32", seed=0, max_model_len=512),
        cache_config=CacheConfig(block_size=_BLOCK, cache_dtype="auto", enable_prefix_caching=True),
        device_config=DeviceConfig(device="cpu"),
        **options,
    )
    # Afterwards: the configuration asks for a GPU before it believes that there is the newer one.
    VllmConfig.use_v2_model_runner = property(lambda _: newer)
    blocks = 24
    config.cache_config.num_gpu_blocks = blocks
    spec = FullAttentionSpec(block_size=_BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    return (AsyncScheduler if ahead else Scheduler)(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=_BLOCK,
        log_stats=True,
    )


def _requests(dice: random.Random) -> list[Any]:
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    init_none_hash(sha256)
    hasher = get_request_block_hasher(_BLOCK, sha256)
    shared = [dice.randrange(10, 3_000) for _ in range(48)]
    made = []
    for number in range(10):
        head = shared if number % 2 else []
        rest = [dice.randrange(10, 3_000) for _ in range(dice.randint(8, 60))]
        params = SamplingParams(max_tokens=dice.randint(1, 60), ignore_eos=True)
        params.update_from_generation_config({}, eos_token_id=2)
        made.append(
            Request(
                request_id=f"r{number}",
                prompt_token_ids=head + rest,
                sampling_params=params,
                pooling_params=None,
                block_hasher=hasher,
            )
        )
    return made


def _computed(output: Any) -> dict[str, int]:
    cached = output.scheduled_cached_reqs
    return {
        **{one.req_id: one.num_computed_tokens for one in output.scheduled_new_reqs},
        **dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True)),
    }


def _step(output: Any) -> dict[str, Any]:
    cached = output.scheduled_cached_reqs
    return {
        "new": [
            [
                one.req_id,
                len(one.prompt_token_ids),
                None if getattr(one, "prefill_token_ids", None) is None else len(one.prefill_token_ids),
                one.num_computed_tokens,
            ]
            for one in output.scheduled_new_reqs
        ],
        "known": [
            list(one)
            for one in zip(cached.req_ids, cached.num_computed_tokens, cached.num_output_tokens, strict=True)
        ],
        "resumed": sorted(cached.resumed_req_ids),
        "scheduled": output.num_scheduled_tokens,
        "drafts": {name: len(ids) for name, ids in output.scheduled_spec_decode_tokens.items()},
        "finished": sorted(output.finished_req_ids),
    }


if __name__ == "__main__":
    main()
