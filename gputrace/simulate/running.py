"""Runs a simulation: each of its processes in one of the machine's, their history put together in order."""

from __future__ import annotations

import multiprocessing
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gputrace.exporters.remote_write import RemoteWriter
from gputrace.prices_rows import PriceBookError
from gputrace.simulate import made_up, watching
from gputrace.simulate.history import History
from gputrace.simulate.plan import NS_PER_S, PlanError
from gputrace.simulate.process import SimulatedProcess
from gputrace.simulate.truth import Truth
from gputrace.telemetry.by_hand import NotDeliveredError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from gputrace.simulate.outputs import Outputs
    from gputrace.simulate.plan import Plan

#: Prometheus takes series that are up to an hour apart: history is sent in slices of less.
_SLICE_NS = 1_800 * NS_PER_S


class SimulationError(RuntimeError):
    """A simulated process failed."""


class Slice(NamedTuple):
    """Some minutes of one process.

    Attributes:
        until_ns: When they end, Unix time.
        series: What Prometheus is to be sent.
        truth: What happened, behind the last of them.
    """

    until_ns: int
    series: list[bytes]
    truth: Truth | None = None


def simulate(plan: Plan, outputs: Outputs, advance: Callable[[float], None] = lambda _: None) -> Truth:
    """Play a simulation from its beginning to its end.

    Args:
        plan: What is simulated.
        outputs: Where it goes.
        advance: Told how much of it is done, from 0 to 1.

    Returns:
        What happened, reckoned without the SDK.

    Raises:
        PlanError: The plan or an output cannot be used.
        PriceBookError: The price book cannot.
        RemoteWriteError: The Prometheus did not take it.
        NotDeliveredError: An OTLP receiver did not.
        SimulationError: A process failed.
    """
    outputs.check()
    writer = None if outputs.remote_write is None else RemoteWriter(outputs.remote_write)
    truth = Truth()
    with tempfile.TemporaryDirectory(prefix="gputrace-prices-") as folder:
        if plan.prices is None:
            plan = replace(plan, prices=made_up.write_prices(plan, Path(folder) / "prices.toml"))
        if outputs.folder is None:
            outputs = replace(outputs, events=Path(folder) / "events")
        if plan.processes == 1:
            together: Iterator[tuple[Slice, ...]] = ((one,) for one in slices(plan, 0, outputs))
        else:
            together = _in_step(plan, outputs)
        for some in together:
            for one in some:
                if writer is not None:
                    writer.send(one.series)
                if one.truth is not None:
                    truth.add(one.truth)
            advance(min(1.0, (some[0].until_ns - plan.start_ns) / (plan.end_ns - plan.start_ns)))
        for series in watching.watch(plan, outputs):
            if writer is not None:
                writer.send(series)
    return truth


def slices(plan: Plan, number: int, outputs: Outputs) -> Iterator[Slice]:
    """Play one process, and yield what it did some minutes at a time."""
    if plan.prices is None:
        raise ValueError("a plan that is played has a price book")
    process = SimulatedProcess(plan, number, outputs.destinations(), plan.prices)
    history = None if outputs.remote_write is None else History(dict(process.providers.resource.attributes))
    intervals_ns = outputs.interval_ns(plan)
    sent_ns = plan.start_ns
    for at_ns, collected in process.play():
        since_ns = at_ns - plan.start_ns
        for name, interval_ns in intervals_ns.items():
            if since_ns % interval_ns == 0 or at_ns > plan.end_ns:
                process.providers.send(collected, at_ns, name)
        if history is not None:
            history.take(collected, at_ns)
        if at_ns - sent_ns >= _SLICE_NS and at_ns < plan.end_ns:
            sent_ns = at_ns
            yield Slice(at_ns, [] if history is None else list(history.flush()))
    process.providers.shutdown()
    yield Slice(plan.end_ns, [] if history is None else list(history.flush()), process.truth)


def _in_step(plan: Plan, outputs: Outputs) -> Iterator[tuple[Slice, ...]]:
    """Play all processes at once; yield what each did in the same minutes."""
    context = multiprocessing.get_context("spawn")
    workers, ends = [], []
    for number in range(plan.processes):
        mine, theirs = context.Pipe(duplex=False)
        worker = context.Process(target=_work, args=(plan, number, outputs, theirs), daemon=True)
        worker.start()
        theirs.close()
        workers.append(worker)
        ends.append(mine)
    try:
        while True:
            some = tuple(_received(end) for end in ends)
            yield some
            if some[0].truth is not None:
                return
    finally:
        for worker, end in zip(workers, ends, strict=True):
            end.close()
            worker.terminate()
            worker.join()


def _received(end: Connection) -> Slice:
    try:
        found: Any = end.recv()
    except EOFError as error:
        raise SimulationError("a simulated process ended before its time; why, it has said above") from error
    if isinstance(found, Exception):
        raise found
    done: Slice = found
    return done


def _work(plan: Plan, number: int, outputs: Outputs, end: Connection) -> None:
    try:
        for one in slices(plan, number, outputs):
            end.send(one)
    except BrokenPipeError:
        # Nobody waits for it any more.
        return
    except (PlanError, PriceBookError, NotDeliveredError) as error:
        end.send(error)
