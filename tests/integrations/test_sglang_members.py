"""Whom each batch of SGLang serves and what each does in it, by SGLang's own rules for its batches."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from gputrace import Work
from gputrace.integrations import sglang_members
from gputrace.integrations.sglang_members import Members
from tests.integrations.sglang_recorded import NAMES, Told, recording
from tests.integrations.sglang_stand_in import (
    Algorithm,
    ForwardMode,
    Lengths,
    Req,
    SamplingParams,
    ScheduleBatch,
)


def members(drafts: int = 0) -> Members[str]:
    return Members(lambda req: str(req.rid), lambda *_: None, drafts)


def request(rid: str = "r", prompt: int = 8, output: int = 0) -> Req:
    req = Req(rid, "", [0] * prompt, SamplingParams())
    req.output_ids = [1] * output
    return req


def extend(*rows: tuple[Req, int, int], **more: Any) -> ScheduleBatch:
    """A batch of which each row is a request, where it begins and how many tokens it computes."""
    reqs, prefixes, counts = zip(*rows, strict=True)
    mode = more.pop("mode", ForwardMode.EXTEND)
    return ScheduleBatch(list(reqs), mode, list(prefixes), list(counts), **more)


def decode(*reqs: Req, **more: Any) -> ScheduleBatch:
    more.setdefault("seq_lens_cpu", Lengths(req.seqlen for req in reqs))
    return ScheduleBatch(list(reqs), ForwardMode.DECODE, **more)


def test_a_prompt_and_what_the_cache_had_of_it() -> None:
    served, work = members().of(extend((request("a"), 0, 8), (request("b", 20), 16, 4)))
    assert served == ["a", "b"]
    assert work == [Work(prefill=8), Work(prefill=4, context=16, cached=16)]


def test_a_prompt_in_chunks_is_not_its_own_cache() -> None:
    known, req = members(), request(prompt=40)
    work = [known.of(extend((req, at, 16 if at < 32 else 8)))[1][0] for at in (0, 16, 32)]
    assert work == [Work(prefill=16), Work(16, 0, 16), Work(8, 0, 32)]


def test_what_another_computed_between_two_chunks_is_cached() -> None:
    known, req = members(), request(prompt=40)
    known.of(extend((req, 0, 16)))
    assert known.of(extend((req, 32, 8)))[1] == [Work(8, 0, 32, 16)]


def test_decoding_computes_one_token_beyond_its_context() -> None:
    known, req = members(), request(output=3)
    assert known.of(decode(req))[1] == [Work(decode=1, context=10)]
    # With overlapped scheduling the last token is not known yet where the next batch is made.
    assert known.of(decode(req, seq_lens_cpu=Lengths([12])))[1] == [Work(decode=1, context=11)]


def test_in_a_mixed_batch_those_that_decode_stand_at_the_end() -> None:
    known, old, new = members(), request("old", output=5), request("new", 4)
    batch = extend((new, 0, 4), (old, 12, 1), mode=ForwardMode.MIXED, decoding_reqs=[old])
    assert known.of(batch) == (["new", "old"], [Work(prefill=4), Work(decode=1, context=12)])


def test_a_last_chunk_of_one_token_is_prefill_and_decoding_seen_as_a_chunk_is_not() -> None:
    known, req = members(), request(prompt=17)
    known.of(extend((req, 0, 16)))
    assert known.of(extend((req, 16, 1)))[1] == [Work(prefill=1, context=16)]
    req.output_ids = [1]
    assert known.of(extend((req, 17, 1), decoding_reqs=[req]))[1] == [Work(decode=1, context=17)]


def test_after_a_retraction_what_was_given_is_prefill_and_what_was_computed_is_computed_again() -> None:
    known, req = members(), request()
    known.of(extend((req, 0, 8)))
    for _ in range(3):
        req.output_ids.append(1)
        known.of(decode(req))
    req.output_ids.append(1)
    # Its last token was sampled and never computed; four tokens are still in the cache.
    assert known.of(extend((req, 4, 8)))[1] == [Work(prefill=8, context=4, recomputed=7)]
    req.output_ids.append(1)
    assert known.of(decode(req))[1] == [Work(decode=1, context=12)]
    progress = getattr(req, sglang_members.ATTRIBUTE)
    assert (progress.cached, progress.recomputed, progress.reach) == (0, 7, 13)


def test_a_request_that_is_retracted_on_its_way_back_is_known_by_how_far_it_had_come() -> None:
    known, req = members(), request(prompt=40)
    steps = [(0, 40), (0, 16), (0, 32), (32, 9)]
    works = []
    for at, count in steps:
        works.append(known.of(extend((req, at, count)))[1][0])
        req.output_ids = [1]
    assert [one.recomputed for one in works] == [0, 16, 32, 8]


def test_a_token_that_was_under_way_when_its_request_was_retracted_is_computed_again() -> None:
    known, req = members(), request()
    known.of(extend((req, 0, 8)))
    req.output_ids = [1]
    known.of(decode(req))
    # What that step sampled is thrown away.
    assert known.of(extend((req, 0, 9)))[1] == [Work(prefill=9, recomputed=9)]


def test_drafts_are_computed_whether_they_are_accepted_or_not() -> None:
    known, req = members(drafts=4), request(output=1)
    eagle = Algorithm("EAGLE")
    assert known.of(decode(req, seq_lens_cpu=None, spec_algorithm=eagle))[1] == [Work(decode=4, context=8)]
    # Two were accepted, and one follows from them.
    req.output_ids += [1, 1, 1]
    assert known.of(decode(req, spec_algorithm=eagle))[1] == [Work(decode=4, context=11)]
    # Whose drafts were all refused.
    req.output_ids += [1]
    again = known.of(extend((req, 0, 13)))[1]
    assert again == [Work(prefill=13, recomputed=12)]


def test_the_leader_of_a_beam_bears_all_its_rows() -> None:
    known, one, beam = members(), request("one"), request("beam")
    tail = SimpleNamespace(entries=[SimpleNamespace(leader_idx=1, start=0, end=3)])
    batch = decode(one, beam, seq_lens_cpu=Lengths([9, 9, 9, 9, 9]), beam_tail=tail)
    assert known.of(batch) == (["one", "beam"], [Work(decode=1, context=8), Work(decode=4, context=8)])


def test_an_idle_batch_serves_nobody() -> None:
    assert members().of(ScheduleBatch([], ForwardMode.IDLE)) == ([], [])


def test_how_a_request_ended_is_told_once() -> None:
    told: list[Any] = []
    known = Members(lambda req: req.rid, lambda req, one, how: told.append((req.rid, one.prompt, how)))
    req = request()
    known.of(extend((req, 0, 8)))
    for one in (req, req, request("never in a batch"), object(), None):
        sglang_members.ended(one, "stop")
    assert told == [("r", 8, "stop")]


class Replay:
    """A recording of the real scheduler, told to the rule batch by batch."""

    def __init__(self, name: str) -> None:
        self.recorded = recording(name)
        self.told = Told(self.recorded)
        self.work: dict[str, list[Work]] = defaultdict(list)
        self.again: dict[str, int] = defaultdict(int)
        self._done: dict[str, set[int]] = defaultdict(set)
        known = members()
        for step in self.recorded["steps"]:
            served, work = known.of(self.told.batch(step))
            assert served == [row[0] for row in step["rows"]]
            for name_, one in zip(served, work, strict=True):
                self._note(name_, one)

    def _note(self, name: str, one: Work) -> None:
        self.work[name].append(one)
        # What was computed twice, found out otherwise: position by position.
        positions = set(range(one.context, one.context + one.prefill + one.decode))
        self.again[name] += len(positions & self._done[name])
        self._done[name] |= positions

    def total(self, name: str) -> Work:
        return Work(*(sum(column) for column in zip(*self.work[name], strict=True)))

    @property
    def finished(self) -> dict[str, dict[str, Any]]:
        return {name: facts for name, facts in self.recorded["requests"].items() if facts["how"] != "abort"}


@pytest.mark.parametrize("name", NAMES)
def test_every_recording_has_what_is_difficult(name: str) -> None:
    recorded = recording(name)
    assert recorded["retractions"] >= 2
    assert any(step["mode"] == "MIXED" and step["decoding"] for step in recorded["steps"])
    assert any(facts["how"] == "abort" for facts in recorded["requests"].values())


@pytest.mark.parametrize("name", NAMES)
def test_what_the_real_scheduler_computes_is_known_to_the_token(name: str) -> None:
    replay = Replay(name)
    for request_, facts in replay.finished.items():
        total = replay.total(request_)
        # One that asks for nothing gets a token too, and is not told.
        needed = facts["prompt"] - total.cached + max(1, facts["output"]) - 1 + total.recomputed
        # With overlapped scheduling one more may be under way when a request is found to have ended.
        beyond = total.prefill + total.decode - needed
        assert 0 <= beyond <= ("overlap" in name), request_
        assert total.recomputed == replay.again[request_], request_
    assert sum(replay.total(one).recomputed for one in replay.work) > 0


@pytest.mark.parametrize("name", NAMES)
def test_what_the_cache_had_is_what_sglang_counts_itself(name: str) -> None:
    replay = Replay(name)
    told = {one: facts["cached"] for one, facts in replay.recorded["requests"].items()}
    assert {one: replay.total(one).cached for one in told} == told
    assert sum(told.values()) > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_is_prefill_and_what_follows_is_not(name: str) -> None:
    replay = Replay(name)
    plain = {one: facts for one, facts in replay.finished.items() if not facts["retractions"]}
    assert plain
    for request_, facts in plain.items():
        total = replay.total(request_)
        assert total.prefill == facts["prompt"] - total.cached, request_
        assert total.recomputed == 0
