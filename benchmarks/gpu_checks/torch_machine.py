"""The real GPU, through torch."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gpu_checks.machine import spend
from gpu_checks.profile_reading import PREFIX, kernels_by_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from gpu_checks.machine import Profile

_LARGE, _SMALL = 8_192, 1_024
_WIDTH, _LENGTH, _HEADS = 2_048, 2_048, 16
_LANES = 2
_CYCLES = 20_000_000


class TorchMachine:
    """See ``Machine``.

    Args:
        torch: The module, with a GPU.
    """

    clock: Callable[[], int] | None = None

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.cuda = torch.cuda
        torch.set_grad_enabled(False)
        torch.manual_seed(0)
        self._one, self._other, self._product = (self._random(_LARGE, _LARGE) for _ in range(3))
        small = [self._random(_SMALL, _SMALL) for _ in range(3 * _LANES)]
        self._small = [small[3 * lane : 3 * lane + 3] for lane in range(_LANES)]
        self._few = self._random(1_024)
        self._tokens = self._random(1, _LENGTH, _WIDTH)
        shapes = {"in": (_WIDTH, 3 * _WIDTH), "out": (_WIDTH, _WIDTH)}
        shapes |= {"up": (_WIDTH, 4 * _WIDTH), "down": (4 * _WIDTH, _WIDTH)}
        self._weights = {name: self._random(*shape) * 0.02 for name, shape in shapes.items()}
        self._cycles_per_ns = 1.0
        self._calibrate()

    def _random(self, *shape: int) -> Any:
        # float16: tensor cores have it from Volta on.
        return self._torch.randn(*shape, device="cuda", dtype=self._torch.float16)

    def _calibrate(self) -> None:
        """Learn how fast the clock runs that ``spin`` counts, once the device has left its idle clocks."""
        for _ in range(20):
            self.multiply()
        start, end = (self.cuda.Event(enable_timing=True) for _ in range(2))
        # Behind another, so that the host's delay between record and launch does not count.
        self.cuda._sleep(_CYCLES)  # noqa: SLF001 - torch's own tests use it; there is no public one
        start.record()
        self.cuda._sleep(_CYCLES)  # noqa: SLF001 - as above
        end.record()
        self.synchronize()
        self._cycles_per_ns = _CYCLES / (start.elapsed_time(end) * 1e6)

    def synchronize(self) -> None:
        """Wait until the device has done all its work."""
        self.cuda.synchronize()

    def host_work(self, ns: int) -> None:
        """Keep this thread busy for so long, without the device."""
        spend(ns)

    def spin(self, ns: int) -> None:
        """Enqueue one kernel of about this length, of a single thread."""
        self.cuda._sleep(max(1, round(ns * self._cycles_per_ns)))  # noqa: SLF001 - as above

    def multiply(self) -> None:
        """Enqueue a large matrix product, which fills the device."""
        self._torch.mm(self._one, self._other, out=self._product)

    def multiply_small(self, lane: int = 0) -> None:
        """Enqueue a small one, with results of its own for each lane."""
        one, other, product = self._small[lane]
        self._torch.mm(one, other, out=product)

    def add(self) -> None:
        """Enqueue a kernel of a few microseconds."""
        self._few.add_(1)

    def block(self) -> None:
        """Enqueue a transformer block's forward pass, batch 1."""
        functional, tokens = self._torch.nn.functional, self._tokens
        normal = functional.layer_norm(tokens, (_WIDTH,))
        parts = (normal @ self._weights["in"]).view(1, _LENGTH, 3, _HEADS, _WIDTH // _HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        tokens = tokens + seen.transpose(1, 2).reshape(1, _LENGTH, _WIDTH) @ self._weights["out"]
        normal = functional.layer_norm(tokens, (_WIDTH,))
        tokens + functional.gelu(normal @ self._weights["up"]) @ self._weights["down"]

    def new_stream(self) -> Any:
        """Return a stream of its own."""
        return self.cuda.Stream()

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Make a stream current within a block."""
        made: AbstractContextManager[Any] = self.cuda.stream(stream)
        return made

    @contextmanager
    def capture(self) -> Iterator[Any]:
        """Capture what a block enqueues, in the default mode, which other threads can break."""
        graph = self.cuda.CUDAGraph()
        with self.cuda.graph(graph):
            yield graph

    def annotate(self, operation: str) -> AbstractContextManager[Any]:
        """Mark in the profile what a block enqueues as part of a call."""
        made: AbstractContextManager[Any] = self._torch.profiler.record_function(PREFIX + operation)
        return made

    @contextmanager
    def profiled(self) -> Iterator[Profile]:
        """Profile a block; gives what is filled in when it ends."""
        profiler = self._torch.profiler
        found: Profile = {}
        kinds = profiler.ProfilerActivity
        with profiler.profile(activities=[kinds.CPU, kinds.CUDA]) as profile:
            yield found
        found.update(kernels_by_call(profile.events()))

    def waiting_functions(self) -> list[tuple[Any, str]]:
        """Return what waits for a device."""
        return [(owner, "synchronize") for owner in (self.cuda, self.cuda.Event, self.cuda.Stream)]

    @contextmanager
    def waiting_forbidden(self) -> Iterator[None]:
        """Let torch refuse whatever it knows to wait for a device, within a block."""
        with warnings.catch_warnings():
            # It warns that it does not know all of it: those that it misses are counted by name.
            warnings.simplefilter("ignore")
            self.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            self.cuda.set_sync_debug_mode("default")
