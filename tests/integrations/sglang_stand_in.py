"""Modules with the names and signatures of SGLang 0.5.23, for what no test here can install.

What goes on inside is made up, as far as it is not SGLang's own rule, said in a comment.
"""

from __future__ import annotations

import functools
import sys
import types
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class ForwardMode(IntEnum):
    EXTEND = auto()
    DECODE = auto()
    MIXED = auto()
    IDLE = auto()
    PREBUILT = auto()
    SPLIT_PREFILL = auto()

    def is_decode(self) -> bool:
        return self == ForwardMode.DECODE

    def is_prebuilt(self) -> bool:
        return self == ForwardMode.PREBUILT

    def is_split_prefill(self) -> bool:
        return self == ForwardMode.SPLIT_PREFILL


class Algorithm:
    def __init__(self, name: str | None = None) -> None:
        self.name = name

    def is_none(self) -> bool:
        return self.name is None


class Lengths(list[int]):
    """What of a tensor is used."""

    def tolist(self) -> list[int]:
        return list(self)


class FinishReason:
    def __init__(self, kind: str, **more: Any) -> None:
        self.told = {"type": kind, **more}

    def to_json(self) -> dict[str, Any]:
        return self.told


class FINISH_ABORT(FinishReason):  # noqa: N801 - SGLang's name
    def __init__(self, message: str | None = None, status_code: Any = None, err_type: Any = None) -> None:
        super().__init__("abort", message=message or "Aborted", status_code=status_code, err_type=err_type)


@dataclass
class SamplingParams:
    """A `msgspec.Struct` in SGLang: copied in the same way."""

    custom_params: Any = None
    max_new_tokens: int = 8


class Req:
    def __init__(
        self, rid: str, origin_input_text: str, origin_input_ids: Any, sampling_params: Any, **more: Any
    ) -> None:
        self.rid = rid
        self.origin_input_ids = origin_input_ids
        self.output_ids: list[int] = []
        self.sampling_params = sampling_params
        self.lora_id = more.get("lora_id")
        self.finished_reason: Any = None
        self.finished_len: int | None = None

    @property
    def seqlen(self) -> int:
        return len(self.origin_input_ids) + len(self.output_ids)

    @property
    def output_ids_through_stop(self) -> list[int]:
        # As SGLang's.
        return self.output_ids if self.finished_len is None else self.output_ids[: self.finished_len]


@dataclass
class ScheduleBatch:
    reqs: list[Any]
    forward_mode: Any = None
    prefix_lens: list[int] | None = None
    extend_lens: list[int] | None = None
    decoding_reqs: list[Any] | None = None
    seq_lens_cpu: Any = None
    beam_tail: Any = None
    inner_idle_batch: Any = None
    spec_algorithm: Any = field(default_factory=Algorithm)


class AbortReq:
    def __init__(self, rid: str, finished_reason: dict[str, Any] | None = None) -> None:
        self.rid = rid
        self.finished_reason = finished_reason


class Streams:
    """The device module: which stream is current."""

    def __init__(self) -> None:
        self.current = "schedule"

    def stream(self, stream: Any) -> Any:
        return _Current(self, stream)


class _Current:
    """As torch's: the same object entered twice forgets what was before."""

    def __init__(self, module: Streams, stream: Any) -> None:
        self.module, self.stream = module, stream

    def __enter__(self) -> None:
        self.before, self.module.current = self.module.current, self.stream

    def __exit__(self, *_: object) -> None:
        self.module.current = self.before


def scheduler_class() -> type:
    class Scheduler:
        """One that calls what a test gives it for each batch, and for each delayed sample."""

        def __init__(self, work: Callable[[], None], *, overlap: bool = False) -> None:
            self.work = work
            self.delays = False
            self.enable_overlap = overlap
            self.is_generation = True
            self.forward_stream = "forward"
            self.device_module = Streams()
            lora_refs = {"id-of-support": SimpleNamespace(lora_name="support-v2")}
            runner = SimpleNamespace(lora_manager=SimpleNamespace(lora_refs=lora_refs))
            self.tp_worker = SimpleNamespace(model_runner=runner)

        def run_batch(self, batch: Any, pp_proxy_tensors: Any = None) -> Any:
            if batch.forward_mode.is_prebuilt():
                # As SGLang's: decode of a prefill that was computed elsewhere.
                return self.run_batch(batch.inner_idle_batch) if batch.inner_idle_batch else "nothing"
            self.work()
            return SimpleNamespace(delay_sample_func=self.work if self.delays else None)

        def launch_batch_sample_if_needed(self, batch_result: Any, cur_batch: Any) -> None:
            if batch_result is not None and batch_result.delay_sample_func is not None:
                batch_result.delay_sample_func()

    return Scheduler


def streamer_class() -> type:
    class SchedulerOutputStreamer:
        __slots__ = ("streamed",)

        def __init__(self) -> None:
            self.streamed: list[Any] = []

        def stream_output(self, reqs: list[Any], return_logprob: bool, skip_req: Any = None) -> None:
            self.streamed.append([req.rid for req in reqs])

    return SchedulerOutputStreamer


def sender_class() -> type:
    class SenderWrapper:
        def __init__(self) -> None:
            self.sent: list[Any] = []

        def send_output(self, output: Any, recv_obj: Any = None) -> None:
            self.sent.append((output, recv_obj))

    return SenderWrapper


def tokenizer_class() -> type:
    class TokenizerManager:
        def __init__(self) -> None:
            self.sent: list[Any] = []

        async def _send_one_request(self, tokenized_obj: Any) -> None:
            self.sent.append(tokenized_obj)

        async def _send_batch_request(self, tokenized_objs: list[Any]) -> None:
            self.sent.extend(tokenized_objs)

    return TokenizerManager


class HookType(Enum):
    AROUND = "around"


def registry_class() -> type:
    class HookRegistry:
        """As SGLang's, for `AROUND` alone."""

        hooks: list[tuple[str, Any]] = []  # noqa: RUF012 - as SGLang's

        @classmethod
        def register(cls, target: str, hook: Any, hook_type: HookType, *, source: Any = None) -> None:
            cls.hooks.append((target, hook))

        @classmethod
        def apply_hooks(cls) -> None:
            for target, hook in cls.hooks:
                module, owner, name = target.rsplit(".", 2)
                place = getattr(sys.modules[module], owner)
                setattr(place, name, _around(getattr(place, name), hook))
            cls.hooks = []

    return HookRegistry


def _around(original: Any, hook: Any) -> Any:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return hook(original, *args, **kwargs)

    return wrapper


def runtime(ranks: Any, drafts: int | None = None) -> dict[str, Any]:
    """What SGLang's `runtime_context` says of this process."""
    return {
        "get_parallel": lambda: ranks,
        "get_spec": lambda: SimpleNamespace(speculative_num_draft_tokens=drafts),
        "get_serving": lambda: SimpleNamespace(served_model_name="tiny"),
    }


def install(patch: pytest.MonkeyPatch, version: str = "0.5.23") -> SimpleNamespace:
    """Put the modules where SGLang's would be; they are not kept."""
    ranks = SimpleNamespace(pp_rank=0, attn_tp_rank=0, attn_cp_rank=0)
    parts: dict[str, dict[str, Any]] = {
        "": {},
        ".version": {"__version__": version},
        ".srt": {},
        ".srt.runtime_context": runtime(ranks),
        ".srt.plugins": {},
        ".srt.plugins.hook_registry": {"HookRegistry": registry_class(), "HookType": HookType},
        ".srt.entrypoints": {},
        ".srt.entrypoints.engine": {},
        ".srt.managers": {},
        ".srt.managers.schedule_batch": {"ScheduleBatch": ScheduleBatch, "Req": Req},
        ".srt.managers.scheduler": {"Scheduler": scheduler_class()},
        ".srt.managers.tokenizer_manager": {"TokenizerManager": tokenizer_class()},
        ".srt.managers.scheduler_components": {},
        ".srt.managers.scheduler_components.output_streamer": {"SchedulerOutputStreamer": streamer_class()},
        ".srt.managers.scheduler_components.output_sender": {"SenderWrapper": sender_class()},
    }
    found: dict[str, Any] = {"ranks": ranks}
    for name, contents in parts.items():
        module = types.ModuleType(f"sglang{name}")
        module.__path__ = []
        vars(module).update(contents)
        found.update(contents)
        patch.setitem(sys.modules, f"sglang{name}", module)
    return SimpleNamespace(**found)
