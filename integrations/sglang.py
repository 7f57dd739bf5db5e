"""SGLang: the device time of each batch, split among the requests that it serves, by feature and tenant.

SGLang finds :func:`register` by its entry point ``sglang.srt.plugins`` in each of its processes. Its HTTP
server believes the baggage of callers that are trusted without further ado.
"""

from __future__ import annotations

import importlib
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import wrapt

from gputrace import faults
from gputrace.integrations import patching, serving_stamps, sglang_scheduler, sglang_stamps
from gputrace.integrations.patching import Version
from gputrace.integrations.serving_middleware import Middleware

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HOOKS", "Middleware", "register"]

_OLDEST, _NEXT = (0, 5, 20), (0, 5, 24)
VERSION = Version("SGLang", "0.5.20 to 0.5.23", "sglang")

_REGISTERING = faults.contained("instrument SGLang")

_SCHEDULER = "sglang.srt.managers.scheduler"
_TOKENIZER = "sglang.srt.managers.tokenizer_manager"
_DETOKENIZER = "sglang.srt.managers.detokenizer_manager"
_ENGINE = "sglang.srt.entrypoints.engine"
_SERVER = "sglang.srt.entrypoints.http_server"
_PARTS = "sglang.srt.managers.scheduler_components"
_BATCHES = "sglang.srt.managers.schedule_batch"


class Hook(NamedTuple):
    """One function of SGLang, and what stands around it.

    Attributes:
        module: The module that the function is found through.
        path: Its name there, with its class.
        parameters: What its parameters begin with.
        around: Called with the function and its arguments.
    """

    module: str
    path: str
    parameters: tuple[str, ...]
    around: Callable[..., Any]


HOOKS = (
    Hook(_SCHEDULER, "Scheduler.run_batch", ("self", "batch"), sglang_scheduler.running),
    Hook(
        _SCHEDULER,
        "Scheduler.launch_batch_sample_if_needed",
        ("self", "batch_result"),
        sglang_scheduler.sampling,
    ),
    Hook(
        f"{_PARTS}.output_streamer",
        "SchedulerOutputStreamer.stream_output",
        ("self", "reqs"),
        sglang_scheduler.streaming,
    ),
    Hook(
        f"{_PARTS}.output_sender",
        "SenderWrapper.send_output",
        ("self", "output", "recv_obj"),
        sglang_scheduler.answering,
    ),
    Hook(
        _TOKENIZER,
        "TokenizerManager._send_one_request",
        ("self", "tokenized_obj"),
        sglang_stamps.sending_one,
    ),
    Hook(
        _TOKENIZER,
        "TokenizerManager._send_batch_request",
        ("self", "tokenized_objs"),
        sglang_stamps.sending_many,
    ),
)

#: What is read of a batch.
_FIELDS = (
    "reqs",
    "forward_mode",
    "prefix_lens",
    "extend_lens",
    "decoding_reqs",
    "seq_lens_cpu",
    "beam_tail",
    "spec_algorithm",
)


def register() -> None:
    """Instrument SGLang in this process; SGLang calls it once in each of its own. Never raises.

    Where the version is not one of those known, or one function has other parameters, one line says so and
    everything is left as it is.
    """
    with _REGISTERING:
        # Children inherit it, also of a process that is not instrumented itself.
        serving_stamps.prepare()
        hooks = _needed()
        if not (hooks and _is_in_range() and patching.fits([hook[:3] for hook in hooks], VERSION)):
            return
        if not _is_known():
            return
        registry = importlib.import_module("sglang.srt.plugins.hook_registry")
        for hook in hooks:
            registry.HookRegistry.register(
                f"{hook.module}.{hook.path}", hook.around, registry.HookType.AROUND
            )
        # Where it is used: it imports all of the API.
        wrapt.register_post_import_hook(_mount, _SERVER)


def _needed() -> list[Hook]:
    """Return what is to be wrapped in this process.

    One that SGLang has started has imported what it runs before any plugin, and nothing else should be
    imported for our sake: in a detokenizer that would be all of it.
    """
    started = _ENGINE not in sys.modules and bool({_SCHEDULER, _DETOKENIZER} & sys.modules.keys())
    return [hook for hook in HOOKS if hook.module in sys.modules or not started]


def _is_in_range() -> bool:
    version = str(importlib.import_module("sglang.version").__version__)
    number = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    known = number is not None and _OLDEST <= (int(number[1]), int(number[2]), int(number[3])) < _NEXT
    if not known:
        faults.log_once(
            "sglang-version",
            "gputrace leaves SGLang %s as it is: it knows %s; upgrade gputrace, or pin sglang",
            version,
            VERSION.number,
        )
    return known


def _is_known() -> bool:
    """Tell whether SGLang's batches have the fields that are read; log those that are missing."""
    batch = importlib.import_module(_BATCHES).ScheduleBatch
    missing = [name for name in _FIELDS if name not in getattr(batch, "__dataclass_fields__", {})]
    if missing:
        faults.log_once(
            "sglang-fields",
            "gputrace leaves SGLang as it is, whose ScheduleBatch has no %s; upgrade gputrace, or pin sglang",
            ", ".join(missing),
        )
    return not missing


def _mount(module: Any) -> None:
    """Put the middleware around SGLang's own application, which has no option for it."""
    with _REGISTERING:
        if not any(one.cls is Middleware for one in module.app.user_middleware):
            module.app.add_middleware(Middleware)
