"""vLLM: the device time of each step, split among the requests that it serves, by feature and tenant.

vLLM finds :func:`register` by its entry point ``vllm.general_plugins`` in each of its processes. Add
``--middleware gputrace.integrations.vllm.Middleware`` to believe the baggage of callers that are trusted.
"""

from __future__ import annotations

import functools
import importlib
import re
from typing import TYPE_CHECKING, Any

import wrapt

from gputrace import faults
from gputrace.integrations import patching, serving_stamps, vllm_scheduler, vllm_stamps, vllm_worker
from gputrace.integrations.patching import Patch, Version
from gputrace.integrations.serving_middleware import Middleware

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PATCHES", "Middleware", "register", "restore"]

_OLDEST, _NEXT = (0, 12), (0, 34)
VERSION = Version("vLLM", "0.12 to 0.33", "vllm")

_REGISTERING = faults.contained("instrument vLLM")

_WORKER = "vllm.v1.worker.worker_base"
_OUTPUT = "vllm.v1.core.sched.output"
_SCHEDULER = "vllm.v1.core.sched.scheduler"
_ADDED = ("self", "request_id", "prompt", "params")

PATCHES = (
    Patch(_WORKER, "WorkerWrapperBase.execute_model", ("self", "scheduler_output"), vllm_worker.executing),
    Patch(_WORKER, "WorkerWrapperBase.sample_tokens", ("self", "grammar_output"), vllm_worker.sampling),
    Patch(_WORKER, "WorkerWrapperBase.execute_dummy_batch", ("self",), vllm_worker.idling),
    Patch(_WORKER, "WorkerWrapperBase.shutdown", ("self",), vllm_worker.stopping),
    Patch("vllm.v1.engine.async_llm", "AsyncLLM.add_request", _ADDED, vllm_stamps.adding),
    Patch("vllm.v1.engine.llm_engine", "LLMEngine.add_request", _ADDED, vllm_stamps.adding),
    Patch(_SCHEDULER, "Scheduler._free_request", ("self", "request"), vllm_scheduler.freeing),
    Patch(_SCHEDULER, "Scheduler.schedule", ("self",), vllm_scheduler.scheduling),
)

#: What a wrapper of a worker hands on to it without a method of its own.
_HANDED_ON = ("sample_tokens", "execute_dummy_batch")

#: What is read of vLLM's own records.
_FIELDS = {
    "SchedulerOutput": (
        "scheduled_new_reqs",
        "scheduled_cached_reqs",
        "num_scheduled_tokens",
        "total_num_scheduled_tokens",
        "scheduled_spec_decode_tokens",
        "finished_req_ids",
    ),
    "NewRequestData": (
        "req_id",
        "prompt_token_ids",
        "prompt_embeds",
        "sampling_params",
        "pooling_params",
        "num_computed_tokens",
        "lora_request",
    ),
    "CachedRequestData": ("req_ids", "resumed_req_ids", "num_computed_tokens", "num_output_tokens"),
}

#: Steps of the executor that compiles a graph of Ray's go past everything above.
_COMPILED = Patch(
    "vllm.v1.executor.ray_utils", "RayWorkerWrapper.execute_model_ray", ("self",), vllm_worker.compiled
)


def register() -> None:
    """Instrument vLLM in this process; vLLM calls it once in each of its own. Never raises.

    Where the version is not one of those known, or one function has other parameters, one line says so and
    everything is left as it is.
    """
    with _REGISTERING:
        # Children inherit it, also of a process that is not instrumented itself.
        serving_stamps.prepare()
        if not (_is_in_range() and _is_known()):
            return
        added = _hand_on()
        if not patching.apply(PATCHES, VERSION):
            _take_back(added)
            return
        # Where it is used: it imports all of Ray.
        wrapt.register_post_import_hook(_watch_compiled, _COMPILED.module)


def _is_in_range() -> bool:
    version = str(importlib.import_module("vllm").__version__)
    number = re.match(r"(\d+)\.(\d+)\.\d", version)
    # One that is built from the source may have no number, and is judged by its functions alone.
    known = number is None or _OLDEST <= (int(number[1]), int(number[2])) < _NEXT
    if not known:
        faults.log_once(
            "vllm-version",
            "gputrace leaves vLLM %s as it is: it knows %s; upgrade gputrace, or pin vllm",
            version,
            VERSION.number,
        )
    return known


def _is_known() -> bool:
    """Tell whether vLLM's records have the fields that are read; log those that are missing."""
    records = importlib.import_module(_OUTPUT)
    missing = []
    for name, fields in _FIELDS.items():
        known = getattr(getattr(records, name, None), "__dataclass_fields__", {})
        missing += [f"{name}.{field}" for field in fields if field not in known]
    if missing:
        faults.log_once(
            "vllm-fields",
            "gputrace leaves vLLM as it is, which has no %s; upgrade gputrace, or pin vllm",
            ", ".join(missing),
        )
    return not missing


def _hand_on() -> list[str]:
    """Give the wrapper of workers methods for what it hands on, so that they can be wrapped."""
    workers = importlib.import_module(_WORKER)
    wrapper, worker = workers.WorkerWrapperBase, workers.WorkerBase
    added = [name for name in _HANDED_ON if name not in vars(wrapper)]
    for name in added:
        setattr(wrapper, name, _handing_on(name, getattr(worker, name, None)))
    return added


def _handing_on(name: str, like: Callable[..., Any] | None) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.worker, name)(*args, **kwargs)

    method.__name__ = name
    return method if like is None else functools.wraps(like)(method)


def _take_back(added: list[str]) -> None:
    wrapper = importlib.import_module(_WORKER).WorkerWrapperBase
    for name in added:
        delattr(wrapper, name)


def _watch_compiled(module: Any) -> None:
    with _REGISTERING:
        if hasattr(getattr(module, "RayWorkerWrapper", None), "execute_model_ray"):
            patching.apply([_COMPILED], VERSION)


def restore() -> None:
    """Give vLLM its own functions back, those that were added excepted, which do what it did without."""
    patching.restore(PATCHES)
