"""What the simulated model server computes in each step, and how long that truly takes."""

from __future__ import annotations

import pytest

from gputrace import Work
from gputrace.simulate.model_server import (
    CONTEXT_S,
    DECODE_S,
    FIXED_S,
    PAIRS_S,
    PREFILL_S,
    Batcher,
    Served,
    alone_s,
    seconds,
    taken,
)

BUDGET = 1_024


def everything(batcher: Batcher[str]) -> dict[str, list[Work]]:
    """What each does, step by step, until nobody is left."""
    found: dict[str, list[Work]] = {}
    while batcher.busy:
        step = batcher.step()
        assert sum(work.prefill + work.decode for _, work in step) <= BUDGET
        for one, work in step:
            found.setdefault(one.owner, []).append(work)
        batcher.leave()
    return found


def asked(*served: Served[str]) -> Batcher[str]:
    batcher: Batcher[str] = Batcher()
    batcher.waiting.extend(served)
    return batcher


def test_a_prompt_is_computed_in_chunks_behind_what_the_cache_has() -> None:
    works = everything(asked(Served("a", 3_000, 500, 20)))["a"]
    assert works == [
        Work(prefill=1_024, context=500, cached=500),
        Work(prefill=1_024, context=1_524),
        Work(prefill=452, context=2_548),
        # The last token of an answer is never put through the model.
        Work(decode=8, context=3_000),
        Work(decode=8, context=3_008),
        Work(decode=3, context=3_016),
    ]


def test_answers_go_on_while_a_prompt_is_computed() -> None:
    batcher = asked(Served("short", 10, 0, 40))
    batcher.step()
    batcher.waiting.append(Served("long", 3_000, 0, 1))
    owners = [[(one.owner, work.prefill, work.decode) for one, work in batcher.step()] for _ in range(2)]
    assert owners == [[("short", 0, 8), ("long", 1_016, 0)]] * 2


def test_who_came_last_makes_room_and_is_computed_once_more() -> None:
    served = [Served(name, 5_000, 1_000, 300) for name in ("first", "last")]
    works = everything(asked(*served))
    assert not any(work.recomputed for work in works["first"])
    again = sum(work.recomputed for work in works["last"])
    decoded = sum(work.decode for work in works["last"])
    assert again >= 4_000
    # All of its prompt, and of its answer what it had by then; what the cache has it has again.
    assert sum(work.prefill for work in works["last"]) == 4_000 + again
    assert decoded == 299
    assert [work.cached for work in works["last"] if work.cached] == [1_000, 1_000]


def test_a_step_takes_what_its_members_do() -> None:
    work = [Work(prefill=100, context=50), Work(decode=8, context=200)]
    pairs = 100 * 50 + 5_050
    expected = (FIXED_S + 100 * PREFILL_S + pairs * PAIRS_S / 1_000) + 8 * DECODE_S + 200 * CONTEXT_S
    parts = taken(work)
    assert seconds(parts) == pytest.approx(expected)
    assert parts[0].decode == parts[1].prefill == 0
    assert parts[1].decode == pytest.approx(FIXED_S / 2 + 8 * DECODE_S + 200 * CONTEXT_S)


def test_alone_it_bears_the_fixed_part_of_each_of_its_steps() -> None:
    one = alone_s(100, 0, 17)
    assert one == pytest.approx(3 * FIXED_S + alone_s(100, 0, 17, fixed=0.0))
    assert alone_s(100, 50, 17) < one
