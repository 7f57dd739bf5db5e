"""A model of random weights that is small enough for a processor, made on the spot: nothing is downloaded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

WORDS = 4_000
CONTEXT = 1_024


def make(folder: Path) -> Path:
    """Write configuration and tokenizer of the model; vLLM makes the weights up (``--load-format dummy``).

    Args:
        folder: Is made, and is what ``--model`` takes.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, PreTrainedTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    LlamaConfig(
        vocab_size=WORDS,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=CONTEXT,
        bos_token_id=1,
        eos_token_id=2,
        architectures=["LlamaForCausalLM"],
        dtype="float32",
    ).save_pretrained(folder)
    special = ["<unk>", "<s>", "</s>"]
    words = [*special, *(f"w{number}" for number in range(WORDS - len(special)))]
    inner = Tokenizer(
        models.WordLevel({word: number for number, word in enumerate(words)}, unk_token=special[0])
    )
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token=special[0], bos_token=special[1], eos_token=special[2]
    )
    tokenizer.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, "bos_token_id": 1}))
    return folder
