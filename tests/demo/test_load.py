from __future__ import annotations

from collections import Counter

import pytest

pytestmark = pytest.mark.requires("httpx")

FEATURES = ("preview", "audit", "entry")
EXAMPLES = [((number,) * 64, number % 10) for number in range(20)]


def test_every_feature_gets_the_same_images() -> None:
    from gputrace.demo.load import plan

    requests = plan(FEATURES, EXAMPLES, total=75, seed=0)
    images = [Counter(one.pixels for one in requests if one.feature == feature) for feature in FEATURES]
    assert images[0] == images[1] == images[2]
    assert images[0].total() == 25
    assert all(one.label == one.pixels[0] % 10 for one in requests)


def test_features_are_mixed_and_the_seed_decides_how() -> None:
    from gputrace.demo.load import plan

    one, same, other = (plan(FEATURES, EXAMPLES, total=60, seed=seed) for seed in (1, 1, 2))
    assert one == same != other
    assert len({request.feature for request in one[:20]}) == len(FEATURES)


def test_a_total_that_does_not_divide_is_sent_all_the_same() -> None:
    from gputrace.demo.load import plan

    assert [one.feature for one in plan(FEATURES[:1], EXAMPLES, total=1, seed=0)] == ["preview"]
    assert len(plan(FEATURES, EXAMPLES, total=7, seed=0)) == 7
    assert plan(FEATURES, EXAMPLES, total=0, seed=0) == []
