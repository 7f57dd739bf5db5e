"""Whom each step of vLLM serves and what each does in it, on what the real scheduler told its workers."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from gputrace import Work
from gputrace.integrations.vllm_members import Members, Progress
from tests.integrations.vllm_recorded import NAMES, output, recording

PLAIN = [name for name in NAMES if not name.endswith("-drafts")]


def members() -> Members[str]:
    return Members(lambda new: str(new.req_id))


class Replay:
    """A recording, told to the rule step by step."""

    def __init__(self, name: str) -> None:
        self.recorded = recording(name)
        self.members = members()
        self.work: dict[str, list[Work]] = defaultdict(list)
        self.left: dict[str, Progress[str]] = {}
        self.again: dict[str, int] = defaultdict(int)
        self._done: dict[str, set[int]] = defaultdict(set)
        for step in self.recorded["steps"]:
            self._tell(step)

    def _tell(self, step: dict[str, Any]) -> None:
        told = output(step)
        self.left.update(self.members.left(told))
        served, work = self.members.of(told)
        assert len(served) == len(work) == len(told.num_scheduled_tokens)
        for name, one in zip(served, work, strict=True):
            assert name is not None
            count = told.num_scheduled_tokens[name]
            assert one.prefill + one.decode == count
            self.work[name].append(one)
            # What was computed twice, found out otherwise: position by position.
            positions = set(range(one.context, one.context + count))
            self.again[name] += len(positions & self._done[name])
            self._done[name] |= positions

    def total(self, name: str) -> Work:
        return Work(*(sum(column) for column in zip(*self.work[name], strict=True)))


@pytest.mark.parametrize("name", NAMES)
def test_every_version_runner_and_way_of_scheduling_was_preempted(name: str) -> None:
    assert recording(name)["preemptions"] >= 2
    assert any(one["status"] == "FINISHED_ABORTED" for one in recording(name)["requests"].values())


@pytest.mark.parametrize("name", PLAIN)
def test_all_that_a_request_needs_is_computed_and_what_is_computed_twice_is_known(name: str) -> None:
    replay = Replay(name)
    assert set(replay.work) == set(replay.recorded["requests"])
    for request, facts in replay.recorded["requests"].items():
        total = replay.total(request)
        if facts["status"] != "FINISHED_ABORTED":
            computed = facts["prompt"] - total.cached + facts["output"] - 1 + total.recomputed
            assert total.prefill + total.decode == computed, request
        assert total.recomputed == replay.again[request], request
    assert sum(replay.total(one).recomputed for one in replay.work) > 0
    assert sum(replay.total(one).cached for one in replay.work) > 0


@pytest.mark.parametrize("name", PLAIN)
def test_what_was_given_before_a_preemption_is_prefill_after_it(name: str) -> None:
    replay = Replay(name)
    for request, facts in replay.recorded["requests"].items():
        total = replay.total(request)
        if facts["preemptions"] == 0 and facts["status"] != "FINISHED_ABORTED":
            assert total.prefill == facts["prompt"] - total.cached
            assert total.recomputed == 0
        else:
            assert total.prefill >= total.recomputed


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("-drafts")])
def test_drafts_are_counted_as_they_were_computed(name: str) -> None:
    replay = Replay(name)
    drafts = sum(sum(step["drafts"].values()) for step in replay.recorded["steps"])
    decode = sum(replay.total(one).decode for one in replay.work)
    delivered = sum(one["output"] for one in replay.recorded["requests"].values())
    assert drafts > 0
    # More than was delivered: those that were refused are in it.
    assert decode > delivered - len(replay.work)
    recomputed = sum(replay.total(one).recomputed for one in replay.work)
    assert 0 < recomputed <= sum(replay.again.values())


@pytest.mark.parametrize("name", NAMES)
def test_what_has_ended_is_forgotten(name: str) -> None:
    replay = Replay(name)
    assert not replay.members.known
    assert set(replay.left) == set(replay.recorded["requests"])
    for request, progress in replay.left.items():
        assert progress.prompt == replay.recorded["requests"][request]["prompt"]
        assert progress.cached == replay.work[request][0].cached
        assert progress.recomputed == replay.total(request).recomputed


def test_both_runners_tell_the_same() -> None:
    older, newer = Replay("0.33.0-v1-sync"), Replay("0.33.0-v2-sync")
    assert {one: older.total(one) for one in older.work} == {one: newer.total(one) for one in newer.work}


def test_a_request_that_is_preempted_on_its_way_back_is_known_by_how_far_it_had_come() -> None:
    known = members()
    steps = [
        {"new": [["r", 40, None, 0]], "scheduled": {"r": 40}},
        {"known": [["r", 0, 1]], "resumed": ["r"], "scheduled": {"r": 16}},
        {"known": [["r", 0, 1]], "resumed": ["r"], "scheduled": {"r": 32}},
        {"known": [["r", 32, 1]], "scheduled": {"r": 9}},
        {"known": [["r", 41, 2]], "scheduled": {"r": 1}},
    ]
    work = [known.of(output(step))[1][0] for step in steps]
    assert [one.recomputed for one in work] == [0, 16, 32, 8, 0]
    assert [one.prefill for one in work] == [40, 16, 32, 9, 0]


def test_a_request_that_nobody_saw_begin_is_nobodys() -> None:
    known = members()
    served, work = known.of(output({"known": [["late", 40, 3]], "scheduled": {"late": 1}}))
    assert (served, work) == ([None], [Work(decode=1, context=40)])
    served, work = known.of(output({"known": [["early", 16, 0]], "scheduled": {"early": 16}}))
    assert (served, work) == ([None], [Work(prefill=16, context=16)])
    known.of(output({"known": [["late", 41, 4]], "scheduled": {"late": 1}}))
    assert known.strangers == 2


def test_a_prompt_of_embeddings_has_a_length() -> None:
    known = members()
    step = output({"new": [["r", 0, None, 0]], "scheduled": {"r": 8}})
    step.scheduled_new_reqs[0].prompt_token_ids = None
    step.scheduled_new_reqs[0].prompt_embeds = [[0.0]] * 8
    assert known.of(step)[1] == [Work(prefill=8)]


def test_versions_without_the_newer_runner_have_no_tokens_of_a_resumed_prefill() -> None:
    known = members()
    step = output({"new": [["r", 8, None, 0]], "scheduled": {"r": 9}})
    del step.scheduled_new_reqs[0].prefill_token_ids
    assert known.of(step)[1] == [Work(prefill=8, decode=1)]
