"""What tracking costs the user's thread and the settler, beside a bare OpenTelemetry span of the same run.

    python benchmarks/overhead.py [--calls N] [--repeats R] [--json]

Each case runs in a process of its own, since OpenTelemetry takes a provider
only once. The user's thread and the rest of the process are told apart by
their CPU time, so that neither the settler nor other processes blur the
figures; both are shown, because both take the interpreter's lock. The best of
the repeats is shown: on a shared machine the disturbances only ever add.
Budgets are those of the project; a ratio to the bare span is what travels
between machines.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

US = 1_000
#: Case: what it is, its budget on the user's thread in µs, or as a ratio to the bare span of the same case.
CASES: dict[str, tuple[str, float | None, float | None]] = {
    "none": ("no tracer provider", 1.5, None),
    "inside": ("inside an unsampled trace", 1.5, None),
    "unsampled": ("an unsampled root", 6.0, None),
    "sampled": ("sampled, span and metrics included", None, 0.75),
}
PER_ITEM_BUDGET_US = 0.3


def work(value: int) -> int:
    """Do nothing: what is left is overhead."""
    return value


async def async_work(value: int) -> int:
    """Do nothing, asynchronously."""
    return value


def items(count: int) -> Any:
    """Yield numbers."""
    yield from range(count)


def best_us(run: Callable[[int], None], calls: int, repeats: int) -> tuple[float, float]:
    """Return the CPU time in µs of one call: the least on this thread, the median on all others."""
    run(calls // 10)
    here: list[float] = []
    others: list[float] = []
    for _ in range(repeats):
        gc.collect()
        time.sleep(0.12)
        process, thread = time.process_time_ns(), time.thread_time_ns()
        run(calls)
        thread = time.thread_time_ns() - thread
        # Until the settler has had them all.
        time.sleep(0.25)
        here.append(thread / calls / US)
        others.append((time.process_time_ns() - process - thread) / calls / US)
    return min(here), statistics.median(others)


def loop(function: Callable[[int], Any]) -> Callable[[int], None]:
    """Call a function so many times."""

    def run(calls: int) -> None:
        for _ in range(calls):
            function(1)

    return run


def async_loop(function: Callable[[int], Any]) -> Callable[[int], None]:
    """Await a coroutine function so many times, in one event loop run."""

    async def run_all(calls: int) -> None:
        for _ in range(calls):
            await function(1)

    return lambda calls: asyncio.run(run_all(calls))


def exhaust(function: Callable[[int], Any]) -> Callable[[int], None]:
    """Run one generator over so many items."""

    def run(count: int) -> None:
        for _ in function(count):
            pass

    return run


def provide(case: str) -> Any:
    """Set the providers of a case; return a tracer."""
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased

    if case != "none":
        sampler = ParentBased(ALWAYS_ON if case == "sampled" else ALWAYS_OFF)
        trace.set_tracer_provider(TracerProvider(sampler=sampler))
        metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))
    return trace.get_tracer("benchmark")


def measure(case: str, calls: int, repeats: int) -> dict[str, float]:
    """Measure one case in this process."""
    tracer = provide(case)
    import gputrace

    def bare_span(_: int) -> None:
        with tracer.start_as_current_span("work"):
            pass

    def all_of_it() -> dict[str, float]:
        plain, _ = best_us(loop(work), calls, repeats)
        tracked, settler = best_us(loop(gputrace.track(model="none")(work)), calls, repeats)
        plain_async, _ = best_us(async_loop(async_work), calls, repeats)
        tracked_async, _ = best_us(async_loop(gputrace.track(model="none")(async_work)), calls, repeats)
        plain_item, _ = best_us(exhaust(items), calls, repeats)
        tracked_item, _ = best_us(exhaust(gputrace.track(items)), calls, repeats)
        span, _ = best_us(loop(bare_span), calls, repeats)
        return {
            "sync": tracked - plain,
            "async": tracked_async - plain_async,
            "item": tracked_item - plain_item,
            "settler": settler,
            "span": span - plain,
        }

    if case == "inside":
        with tracer.start_as_current_span("request"):
            return all_of_it()
    return all_of_it()


def verdict(figures: dict[str, float], budget_us: float | None, budget_ratio: float | None) -> str:
    """Say what the budget is and whether it is kept."""
    if budget_us is not None:
        return f"<= {budget_us} us: {'kept' if figures['sync'] <= budget_us else 'NOT kept'}"
    ratio = figures["sync"] / figures["span"]
    return f"<= {budget_ratio} x span: {'kept' if ratio <= (budget_ratio or 0) else 'NOT kept'}"


def main() -> int:
    """Run all cases and print the table."""
    parser = argparse.ArgumentParser(description="Overhead of tracking, beside a bare OpenTelemetry span.")
    parser.add_argument("--calls", type=int, default=4_000, help="calls in one repeat")
    parser.add_argument("--repeats", type=int, default=15, help="repeats, of which the best counts")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--case", choices=CASES, help="measure one case in this process and print JSON")
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(arguments.case, arguments.calls, arguments.repeats)))
        return 0
    results = {}
    for case in CASES:
        command = [sys.executable, __file__, "--case", case]
        command += ["--calls", str(arguments.calls), "--repeats", str(arguments.repeats)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        results[case] = json.loads(done.stdout)
    if arguments.json:
        print(json.dumps(results))
        return 0
    print("CPU time in us a call above the undecorated one; best of the repeats\n")
    heads = f"{'sync':>7}{'async':>7}{'item':>7}{'settler':>9}{'sum':>7}{'bare span':>11}{'ratio':>7}"
    print(f"{'case':<36}{heads}  budget (sync)")
    for case, (name, budget_us, budget_ratio) in CASES.items():
        row = results[case]
        print(
            f"{name:<36}{row['sync']:>7.2f}{row['async']:>7.2f}{row['item']:>7.2f}{row['settler']:>9.2f}"
            f"{row['sync'] + row['settler']:>7.2f}{row['span']:>11.2f}{row['sync'] / row['span']:>7.2f}"
            f"  {verdict(row, budget_us, budget_ratio)}"
        )
    per_item = results["inside"]["item"]
    kept = "kept" if per_item <= PER_ITEM_BUDGET_US else "NOT kept"
    print(
        f"\nper yielded item of a tracked generator: {per_item:.2f} us, budget {PER_ITEM_BUDGET_US}: {kept}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
