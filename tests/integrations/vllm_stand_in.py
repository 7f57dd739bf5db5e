"""Modules with the names and signatures of vLLM 0.33, for what no test here can install.

What goes on inside is made up; `make vllm-check` runs the real one.
"""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


@dataclass
class NewRequestData:
    req_id: str
    prompt_token_ids: Any
    sampling_params: Any
    pooling_params: Any
    num_computed_tokens: int
    lora_request: Any
    prompt_embeds: Any = None
    prefill_token_ids: Any = None


@dataclass
class CachedRequestData:
    req_ids: list[str]
    resumed_req_ids: set[str]
    num_computed_tokens: list[int]
    num_output_tokens: list[int]


@dataclass
class SchedulerOutput:
    scheduled_new_reqs: list[Any]
    scheduled_cached_reqs: Any
    num_scheduled_tokens: dict[str, int]
    total_num_scheduled_tokens: int
    scheduled_spec_decode_tokens: dict[str, list[int]] = field(default_factory=dict)
    finished_req_ids: set[str] = field(default_factory=set)


class WorkerBase:
    def execute_model(self, scheduler_output: Any) -> Any:
        raise NotImplementedError

    def sample_tokens(self, grammar_output: Any) -> Any:
        raise NotImplementedError


class Worker(WorkerBase):
    """One that calls what a test gives it, and pools where it is told to."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work
        self.pools = False

    def execute_model(self, scheduler_output: Any) -> Any:
        self.work()
        return "pooled" if self.pools else None

    def sample_tokens(self, grammar_output: Any) -> Any:
        self.work()
        return "sampled", grammar_output

    def execute_dummy_batch(self) -> None:
        self.work()


def wrapper_class() -> type:
    class WorkerWrapperBase:
        def __init__(self, worker: Any, rpc_rank: int = 0) -> None:
            self.rpc_rank = rpc_rank
            self.worker = worker
            model = SimpleNamespace(model="/models/tiny", served_model_name="tiny")
            self.vllm_config = SimpleNamespace(model_config=model)

        def __getattr__(self, attr: str) -> Any:
            return getattr(self.worker, attr)

        def execute_model(self, scheduler_output: Any) -> Any:
            return self.worker.execute_model(scheduler_output)

        def shutdown(self) -> None:
            self.stopped = True

    return WorkerWrapperBase


def engine_class(*, asynchronous: bool) -> type:
    class Engine:
        def __init__(self) -> None:
            self.added: list[Any] = []

        def add_request(
            self, request_id: str, prompt: Any, params: Any, arrival_time: float | None = None
        ) -> str:
            self.added.append((request_id, prompt, params, arrival_time))
            return request_id

    class AsyncEngine(Engine):
        async def add_request(  # type: ignore[override]
            self, request_id: str, prompt: Any, params: Any, arrival_time: float | None = None
        ) -> str:
            return super().add_request(request_id, prompt, params, arrival_time)

    return AsyncEngine if asynchronous else Engine


def scheduler_class() -> type:
    class Scheduler:
        def __init__(self) -> None:
            self.finished_req_ids: set[str] = set()

        def schedule(self, throttle_prefills: bool = False) -> Any:
            finished, self.finished_req_ids = self.finished_req_ids, set()
            return SchedulerOutput([], CachedRequestData([], set(), [], []), {}, 0, {}, finished)

        def _free_request(self, request: Any, delay_free_blocks: bool = False) -> Any:
            self.finished_req_ids.add(request.request_id)
            return None, None

    return Scheduler


def ray_wrapper_class() -> type:
    class RayWorkerWrapper:
        def execute_model_ray(self, execute_model_input: Any) -> Any:
            return execute_model_input

    return RayWorkerWrapper


def install(patch: pytest.MonkeyPatch, version: str = "0.33.0") -> SimpleNamespace:
    """Put the modules where vLLM's would be; they are not kept."""
    parts = {
        "": {"__version__": version},
        ".v1": {},
        ".v1.worker": {},
        ".v1.worker.worker_base": {"WorkerWrapperBase": wrapper_class(), "WorkerBase": WorkerBase},
        ".v1.engine": {},
        ".v1.engine.async_llm": {"AsyncLLM": engine_class(asynchronous=True)},
        ".v1.engine.llm_engine": {"LLMEngine": engine_class(asynchronous=False)},
        ".v1.executor": {},
        ".v1.executor.ray_utils": {"RayWorkerWrapper": ray_wrapper_class()},
        ".v1.core": {},
        ".v1.core.sched": {},
        ".v1.core.sched.scheduler": {"Scheduler": scheduler_class()},
        ".v1.core.sched.output": {
            "SchedulerOutput": SchedulerOutput,
            "NewRequestData": NewRequestData,
            "CachedRequestData": CachedRequestData,
        },
    }
    found: dict[str, Any] = {}
    for name, contents in parts.items():
        module = types.ModuleType(f"vllm{name}")
        module.__path__ = []
        vars(module).update(contents)
        found.update(contents)
        patch.setitem(sys.modules, f"vllm{name}", module)
    return SimpleNamespace(**found)
