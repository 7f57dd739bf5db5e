"""Whom each batch of SGLang serves and what each does in it, by SGLang's own rules for its batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gputrace import Work
from gputrace.integrations import sglang_members
from gputrace.integrations.sglang_members import Members
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
