"""What must be true of a run, to the token and to the nanosecond."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from readings import NANO, Metrics, Steps, counters, probed, spans
from traffic import FEATURES, TENANTS, trace_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from traffic import Sent

_NOBODY = "__none__"
_CANCELLED = "cancelled"


class Run(NamedTuple):
    """One run of the server.

    Attributes:
        folder: Of its files.
        planned: What was sent.
        answered: Tokens that each was given, by name.
        counters: vLLM's own page of metrics.
    """

    folder: Path
    planned: Sequence[Sent]
    answered: dict[str, int]
    counters: str


class Findings:
    """Collects what is wrong, and says what was looked at."""

    def __init__(self) -> None:
        self.wrong: list[str] = []

    def check(self, holds: bool, what: str) -> None:
        """Print what was checked; keep it where it does not hold."""
        print(f"  {'ok  ' if holds else 'FAIL'}  {what}", flush=True)
        if not holds:
            self.wrong.append(what)


def conserved(found: Findings, run: Run) -> None:
    """Check that what features were charged is what the steps took, and tokens what was scheduled."""
    workers = probed(run.folder / "steps")
    metrics = Metrics(run.folder / "data")
    took_ns = sum(step["ns"] for worker in workers for step in worker.steps)
    charged_ns = metrics.total("gputrace.feature.time") * NANO
    number = sum(len(worker.steps) for worker in workers)
    found.check(
        abs(charged_ns - took_ns) < 1,
        f"{number} steps of {len(workers)} worker(s) took {took_ns} ns, charged {charged_ns:.0f} ns",
    )
    steps = [step for worker in workers for step in worker.steps if "work" in step]
    wrong = [step for step in steps if not _adds_up(step)]
    found.check(not wrong, f"prefill + decode = scheduled tokens in {len(steps)} steps, not in {len(wrong)}")


def _adds_up(step: dict[str, Any]) -> bool:
    each = all(
        prefill + decode == count
        for (prefill, decode, *_), count in zip(step["work"], step["counts"], strict=True)
    )
    return each and sum(step["counts"]) == step["scheduled"]


def agrees_with_vllm(found: Findings, run: Run, *, ranks: int = 1) -> None:
    """Check sums of tokens against vLLM's own counters."""
    tokens: Counter[str] = Counter()
    for worker in probed(run.folder / "steps"):
        tokens += worker.tokens()
    own = counters(run.counters)
    name = "vllm:prompt_tokens_by_source_total"
    computed, cached = own[f'{name}source="local_compute"'], own[f'{name}source="local_cache_hit"']
    found.check(
        tokens["prefill"] == computed * ranks,
        f"prefill {tokens['prefill']} = {ranks} x {computed:.0f} prompt tokens that vLLM says it computed",
    )
    found.check(
        tokens["cached"] == cached * ranks,
        f"cached {tokens['cached']} = {ranks} x {cached:.0f} that vLLM says it found in its cache",
    )
    print(f"        decode {tokens['decode']}, recomputed {tokens['recomputed']}")


def every_request_whole(found: Findings, run: Run) -> None:
    """Check for each request that ran to its end that all it needed was computed, and what was twice."""
    wrong = checked = 0
    for worker in probed(run.folder / "steps"):
        needed = _computed_by_request(worker)
        for name, row in worker.ended.items():
            if row["how"] is None or row["how"][0] is not None:
                continue
            checked += 1
            computed, recomputed = needed[name]
            wrong += computed != row["prompt"] - row["cached"] + row["how"][2] - 1 + recomputed
    found.check(
        checked > 0 and not wrong,
        f"prefill + decode = prompt - cached + output - 1 + recomputed for {checked} requests, "
        f"not for {wrong}",
    )


def _computed_by_request(worker: Steps) -> dict[str, tuple[int, int]]:
    summed: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for step in worker.steps:
        for name, (prefill, decode, _, _, again) in zip(
            step.get("names", ()), step.get("work", ()), strict=True
        ):
            computed, recomputed = summed[name]
            summed[name] = (computed + prefill + decode, recomputed + again)
    return summed


def billed_right(found: Findings, run: Run) -> None:
    """Check whom every request was billed to, in the steps, in the metrics and in its span."""
    planned = {sent.name: sent for sent in run.planned}
    wrong: set[str] = set()
    seen: set[str] = set()
    for worker in probed(run.folder / "steps"):
        for step in worker.steps:
            for name, feature, tenant in zip(
                step.get("names", ()), step.get("features", ()), step.get("tenants", ()), strict=True
            ):
                sent = planned[_name(name)]
                seen.add(name)
                if (feature, tenant) != (sent.feature, sent.tenant):
                    wrong.add(name)
    expected = sum(sent.samples for sent in run.planned)
    found.check(len(seen) == expected, f"{len(seen)} engine requests seen for {expected} that were made")
    found.check(not wrong, f"every one under its feature and tenant, {len(wrong)} are not")


def nothing_is_stolen(found: Findings, run: Run) -> None:
    """Check that no client has billed anybody else."""
    rows = Metrics(run.folder / "data").by("gputrace.feature.time", "gputrace.feature", "gputrace.tenant")
    known = {(one, other) for one in FEATURES for other in TENANTS} | {(_NOBODY, "")}
    known |= {("__overhead__", "")}
    spoofing = sum(sent.spoofs for sent in run.planned)
    found.check(
        set(rows) <= known, f"{spoofing} spoofed vllm_xargs changed nothing: {len(rows)} rows of metrics"
    )


def _name(engine_id: str) -> str:
    return engine_id.rpartition("cmpl-")[2].split("-")[0]


def aborted_are_charged(found: Findings, run: Run) -> None:
    """Check that clients that went left requests that are charged, and cancelled."""
    gone = {sent.name for sent in run.planned if sent.gone}
    told = [span for span in spans(run.folder / "data") if span["name"] == "vllm generate"]
    cancelled = {
        _name(span["attributes"]["gen_ai.response.id"])
        for span in told
        if span["attributes"]["gputrace.status"] == _CANCELLED
        and span["attributes"]["gputrace.call.device.time"] > 0
    }
    found.check(cancelled == gone, f"{len(cancelled)} requests cancelled and charged of {len(gone)} aborted")
    found.check(
        len(told) == sum(sent.samples for sent in run.planned),
        f"{len(told)} spans, one an engine request",
    )
    traces = {sent.name: trace_id(sent) for sent in run.planned if sent.feature is not None}
    strays = [
        span
        for span in told
        if (name := _name(span["attributes"]["gen_ai.response.id"])) in traces
        and int(span["traceId"], 16) != traces[name]
    ]
    found.check(not strays, f"each in the trace that it came with, {len(strays)} are not")
    ids = {(span["traceId"], span["spanId"]) for span in told}
    found.check(len(ids) == len(told), "no two spans have one identity")


def counted_once(found: Findings, run: Run) -> None:
    """Check that ranks which run the same steps count them once."""
    workers = probed(run.folder / "steps")
    steps = max(sum("work" in step for step in worker.steps) for worker in workers)
    metrics = Metrics(run.folder / "data")
    calls = sum(metrics.by("gputrace.calls", "gputrace.feature", gputrace_operation="vllm step").values())
    found.check(calls == steps, f"{calls:.0f} calls counted for {steps} steps on {len(workers)} ranks")
    requests = sum(metrics.by("gputrace.requests", "gputrace.feature").values())
    expected = sum(sent.samples for sent in run.planned)
    found.check(requests == expected, f"{requests:.0f} requests counted of {expected}")
    lists = [[(step["names"], step["work"]) for step in worker.steps if "work" in step] for worker in workers]
    found.check(all(one == lists[0] for one in lists), "the same members on all ranks in every step")


def preempted(found: Findings, run: Run) -> None:
    """Check that there were preemptions, and that what they cost is shown."""
    own = counters(run.counters)["vllm:num_preemptions_total"]
    tokens = sum((worker.tokens() for worker in probed(run.folder / "steps")), Counter())
    found.check(own >= 10, f"{own:.0f} preemptions")
    found.check(
        tokens["recomputed"] > 0,
        f"{tokens['recomputed']} tokens recomputed of {tokens['prefill'] + tokens['decode']} computed",
    )


def speculated(found: Findings, run: Run) -> None:
    """Check that drafts are counted as they were computed, accepted or not."""
    steps = [step for worker in probed(run.folder / "steps") for step in worker.steps]
    drafts = sum(step.get("drafts", 0) for step in steps)
    tokens = sum((worker.tokens() for worker in probed(run.folder / "steps")), Counter())
    delivered = counters(run.counters)["vllm:generation_tokens_total"]
    found.check(
        0 < drafts < tokens["decode"] and tokens["decode"] > delivered,
        f"{tokens['decode']} decode tokens computed, {drafts} of them drafts, {delivered:.0f} delivered",
    )


def all_answered(found: Findings, run: Run) -> None:
    """Check that clients had everything that they asked for."""
    short = [
        sent.name
        for sent in run.planned
        if not sent.gone and run.answered[sent.name] != sent.output * sent.samples
    ]
    found.check(not short, f"{len(run.answered)} requests answered, {len(short)} of them short")


def faults_contained(found: Findings, run: Run) -> None:
    """Check that steps whose members could not be read were counted and not charged."""
    metrics = Metrics(run.folder / "data")
    rows = metrics.by("gputrace.sdk.unmeasured", "gputrace.sdk.reason")
    unread = rows.get(("vllm_step_unreadable",), 0)
    faulty = sum(metrics.by("gputrace.sdk.faults", "gputrace.feature").values())
    found.check(unread > 0, f"{unread:.0f} steps counted as unmeasured, {faulty:.0f} faults contained")
    found.check(faulty == unread, "no other faults")
