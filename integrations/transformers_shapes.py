"""What a ``generate`` computes, as the shapes of what it is given and gives back tell."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_INPUTS = ("inputs", "input_ids", "inputs_embeds", "input_features", "pixel_values")
_EMBEDDED = "inputs_embeds"
#: Rows, and tokens in each.
_DIMENSIONS = 2


class Generation:
    """One ``generate``.

    Args:
        function: ``GenerationMixin.generate``.
        model: That generates.
        args: Of the call.
        kwargs: Likewise.

    Attributes:
        operation: Name of the call.
        name: Of the model; None where it has none.
        devices: That it is on, None for the current one.
        width: Rows that each row of the input becomes: beams, or several answers.
        prompt_width: How many of those the prompt is computed for.
    """

    def __init__(
        self, function: Callable[..., Any], model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        given = inspect.signature(function).bind(model, *args, **kwargs).arguments
        more = given.get("kwargs", {})
        self.operation = f"generate {type(model).__name__}"
        self.name, self.devices = name_of(model), devices_of(model, model.device)
        config = given.get("generation_config") or model.generation_config
        beams, answers = (
            more.get(name, getattr(config, name, None)) or 1 for name in ("num_beams", "num_return_sequences")
        )
        self.width = max(beams, answers)
        self._is_encoder_decoder = bool(getattr(model.config, "is_encoder_decoder", False))
        self.prompt_width = 1 if self._is_encoder_decoder else self.width
        self._read_prompt({**given, **more})

    _rows: int
    _length: int

    def _read_prompt(self, given: Mapping[str, Any]) -> None:
        name = next((name for name in _INPUTS if given.get(name) is not None), None)
        # Without any it begins with one token of its own.
        self._rows, self._length = (1, 1) if name is None else given[name].shape[:2]
        if name is not None and name != _EMBEDDED and len(given[name].shape) != _DIMENSIONS:
            # Sounds and images are no tokens.
            self._length = 0
        # The answer repeats the prompt where that was given as tokens.
        self._repeated = 0 if name == _EMBEDDED else self._length
        if self._is_encoder_decoder:
            self._repeated = 1
        mask: Any = given.get("attention_mask")
        is_usable = mask is not None and tuple(mask.shape) == (self._rows, self._length)
        # Queued where it lies on a device; read once generate has waited for that anyway.
        self._real = mask.sum(1) if is_usable else None
        past = getattr(given.get("past_key_values"), "get_seq_length", None)
        self._known = int(past()) if past is not None and not self._is_encoder_decoder else 0

    def real_tokens(self) -> list[int]:
        """Return the tokens of each row that are no padding and not in a cache already."""
        lengths = [self._length] * self._rows if self._real is None else self._real.tolist()
        return [max(0, int(length) - self._known) for length in lengths]

    def padding(self) -> float:
        """Return which share of the prompts is padding, 0 to 1."""
        whole = self._rows * max(0, self._length - self._known)
        return 0.0 if not whole else max(0.0, 1.0 - sum(self.real_tokens()) / whole)

    def decoded(self, result: Any) -> int:
        """Return the tokens that were computed for each row after its prompt, the last of which never is."""
        sequences = getattr(result, "sequences", result)
        new = int(sequences.shape[1]) - self._repeated
        return max(0, new if self._is_encoder_decoder else new - 1)


def name_of(model: Any) -> str | None:
    """Return the name of a model: of a folder only the last part, None where there is none."""
    name = getattr(getattr(model, "config", None), "name_or_path", None) or ""
    return (Path(name).name if Path(name).is_absolute() else name) or None


def devices_of(model: Any, device: Any) -> list[str] | None:
    """Return the GPUs that a model is on, None where that is the current one.

    Args:
        model: Of Transformers.
        device: On which it is, where it is not spread over several.
    """
    spread = getattr(model, "hf_device_map", None) or {}
    used = {_cuda_name(one) for one in (spread.values() or [device])} - {None}
    return None if used <= {_current_device()} else sorted(filter(None, used))


def _cuda_name(device: Any) -> str | None:
    text = f"cuda:{device}" if isinstance(device, int) else str(device)
    if text == "cuda":
        return _current_device()
    return text if text.startswith("cuda:") else None


def _current_device() -> str | None:
    import torch

    return f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_initialized() else None
