"""Records what the real scheduler of SGLang runs, on a processor, for `make test`.

    python tests/sglang_check/record.py tests/integrations/sglang_recordings

The engine, its scheduler, memory pools, prefix cache and overlapped scheduling are SGLang's own; the model is
tiny, its weights are made up, and the kernels are torch's.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "vllm_check"))

import model
import probe

HERE = Path(__file__).resolve().parent
#: What every run has: too little memory, prompts in chunks, and chunks beside what decodes.
ARGUMENTS: dict[str, Any] = {
    "load_format": "dummy",
    "device": "cpu",
    "dtype": "float32",
    "attention_backend": "torch_native",
    "sampling_backend": "pytorch",
    "grammar_backend": "none",
    "disable_cuda_graph": True,
    "log_level": "warning",
    "max_total_tokens": 400,
    "chunked_prefill_size": 32,
    "enable_mixed_chunk": True,
    "random_seed": 1,
}
RUNS: dict[str, dict[str, Any]] = {"overlap": {}, "plain": {"disable_overlap_schedule": True}}
_REQUESTS = 14
_SHARED = 48


def main() -> None:
    """Record each run in a process of its own: an engine is one a process."""
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        _run(sys.argv[2])
        return
    import subprocess

    import sglang.version

    folder.mkdir(parents=True, exist_ok=True)
    for name in RUNS:
        with tempfile.TemporaryDirectory() as made:
            variables = {**os.environ, **_environment(made)}
            subprocess.run([sys.executable, __file__, str(folder), name], env=variables, check=True)
            (written,) = Path(made).glob("record.*")
            recorded = _read(written)
        made_of = f"{sglang.version.__version__}-{name}"
        print(made_of, len(recorded["steps"]), "steps,", recorded["retractions"], "retractions")
        (folder / f"{made_of}.json").write_text(_as_lines(recorded))


def _environment(folder: str) -> dict[str, str]:
    paths = [HERE, HERE / "plugin", HERE / "stand_ins", os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "SGLANG_USE_CPU_ENGINE": "1",
        "SGLANG_PLUGINS": "sglang_check_probe",
        # SGLang's own way to see whether retraction works.
        "SGLANG_TEST_RETRACT": "1",
        "SGLANG_TEST_RETRACT_INTERVAL": "9",
        probe.VARIABLE: f"{folder}/record",
    }


def _run(name: str) -> None:
    import sglang

    with tempfile.TemporaryDirectory() as made:
        tiny = model.make(Path(made))
        engine = sglang.Engine(model_path=str(tiny), **ARGUMENTS, **RUNS[name])
        engine.loop.run_until_complete(_ask(engine))
        engine.shutdown()


async def _ask(engine: Any) -> None:
    """Ask for answers of some length, some of them twice the same beginning; break two off."""
    chance = random.Random(7)
    shared = [chance.randrange(3, model.WORDS) for _ in range(_SHARED)]

    async def one(number: int) -> None:
        await asyncio.sleep(0.05 * number)
        own = [chance.randrange(3, model.WORDS) for _ in range(chance.randint(4, 50))]
        prompt = (shared if number % 2 else []) + own
        params = {"max_new_tokens": chance.randint(1, 24), "ignore_eos": number % 3 != 0}
        gone, rid = number in {5, 8}, f"request-{number:02}"
        if gone:
            params["max_new_tokens"] = 200
        answer = await engine.async_generate(input_ids=prompt, sampling_params=params, rid=rid, stream=True)
        async for part in answer:
            if gone and part["meta_info"]["completion_tokens"] >= 3:
                engine.tokenizer_manager.abort_request(rid=rid)

    await asyncio.gather(*(one(number) for number in range(_REQUESTS)))
    # One whose answers share what was computed for the prompt.
    await engine.async_generate(input_ids=shared[:9], sampling_params={"max_new_tokens": 3, "n": 2})


def _read(written: Path) -> dict[str, Any]:
    requests: dict[str, dict[str, Any]] = {}
    names: dict[str, str] = {}
    steps = []
    for line in written.read_text(encoding="utf-8").splitlines():
        told = json.loads(line)
        if "new" in told:
            names[told["new"]] = f"r{len(names)}"
            requests[names[told["new"]]] = {"prompt": told["prompt"]}
        elif "end" in told:
            requests[names[told.pop("end")]].update(told)
        else:
            told["rows"] = [[names[row[0]], *row[1:]] for row in told["rows"]]
            steps.append(told)
    retractions = sum(one.get("retractions", 0) for one in requests.values())
    return {"retractions": retractions, "requests": requests, "steps": steps}


def _as_lines(recorded: dict[str, Any]) -> str:
    steps = ",\n".join(json.dumps(step, separators=(",", ":")) for step in recorded.pop("steps"))
    rest = json.dumps(recorded, separators=(",", ":"))[:-1]
    return f'{rest},"steps":[\n{steps}\n]}}\n'


if __name__ == "__main__":
    main()
