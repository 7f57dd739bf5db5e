"""A vLLM server whose device time is charged to features and tenants, from start to report: see README.md."""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep

import httpx

import gputrace

# Each feature's prompts and answers, tokens: what a feature costs is not how many requests it has.
SHAPES = {
    "search-answer": ((120, 300), (4, 16)),
    "support-chat": ((10, 40), (30, 90)),
    "ticket-triage": ((20, 60), (1, 3)),
}
TENANTS = ("acme", "globex")
DATA = Path("gputrace-data")
SETTINGS = {
    "GPUTRACE_DATA_DIR": str(DATA),
    "GPUTRACE_METRIC_ATTRIBUTES": "tenant",
    "GPUTRACE_BAGGAGE_KEY": "a secret that services share",
    "OTEL_SERVICE_NAME": "vllm",
    # For the build without a GPU; others do not ask.
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}


def make_model(folder: Path) -> Path:
    """Write a Llama that is small enough for a processor; its weights are random, nothing is downloaded."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, PreTrainedTokenizerFast

    unknown, begin, end = "<unk>", "<s>", "</s>"
    words = [unknown, begin, end, *(f"w{number}" for number in range(3_997))]
    size = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4}
    LlamaConfig(
        vocab_size=len(words), architectures=["LlamaForCausalLM"], max_position_embeddings=1_024, **size
    ).save_pretrained(folder)
    words_by_number = models.WordLevel({word: at for at, word in enumerate(words)}, unk_token=unknown)
    tokenizer = Tokenizer(words_by_number)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token=unknown, bos_token=begin, eos_token=end
    )
    made.save_pretrained(folder)
    return folder


def start(model: str, port: int, log: Path) -> subprocess.Popen[bytes]:
    """Start vLLM; gputrace is in it since it is installed beside it. Its middleware believes baggage."""
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model]
    command += ["--served-model-name", "assistant", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--max-model-len", "1024", "--middleware", "gputrace.integrations.vllm.Middleware"]
    if Path(model).is_dir():
        command += ["--load-format", "dummy", "--enforce-eager"]
    with log.open("w") as out:
        return subprocess.Popen(command, stdout=out, stderr=out)


def wait(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait until it answers."""
    deadline = monotonic() + 600
    while server.poll() is None and monotonic() < deadline:
        try:
            if httpx.get(f"{url}/health", timeout=5).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            sleep(0.5)
    raise SystemExit(f"vLLM did not come up:\n{log.read_text()[-3_000:]}")


def ask(url: str, number: int) -> None:
    """Ask for one completion, as a service would that bills it to the feature it serves."""
    dice = random.Random(number)
    feature = list(SHAPES)[number % 3]
    prompts, answers = SHAPES[feature]
    body = {
        "model": "assistant",
        "prompt": [dice.randrange(10, 3_900) for _ in range(dice.randint(*prompts))],
        "max_tokens": dice.randint(*answers),
        "ignore_eos": True,
    }
    headers: dict[str, str] = {}
    with gputrace.attribute_to(feature=feature, tenant=TENANTS[number // 3 % 2]):
        gputrace.inject(headers)
    httpx.post(f"{url}/v1/completions", json=body, headers=headers, timeout=600).raise_for_status()


def main() -> None:
    """Start the server, send requests, stop it, and print who spent its time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="any that vLLM can serve (default: a tiny one that is made here)")
    parser.add_argument("--requests", type=int, default=120)
    arguments = parser.parse_args()
    # For the server, and for this process, which signs what it sends.
    os.environ.update(SETTINGS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "vllm.log"
        model = arguments.model or str(make_model(Path(folder) / "model"))
        server = start(model, port, log)
        try:
            wait(server, url, log)
            with ThreadPoolExecutor(16) as pool:
                list(pool.map(lambda number: ask(url, number), range(arguments.requests)))
            # vLLM kills its workers when it stops; they export whenever there is a pause.
            sleep(2)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
    for by in ("feature", "tenant"):
        subprocess.run([sys.executable, "-m", "gputrace", "report", str(DATA), "--by", by], check=True)


if __name__ == "__main__":
    main()
