"""How a carrier gets beside the arguments of a call, on Ray's own functions; needs no cluster."""

from __future__ import annotations

from typing import Any

import pytest

import gputrace
from gputrace.integrations import ray_calls
from gputrace.integrations.ray_context import KEY

pytestmark = pytest.mark.requires("ray")


@pytest.fixture
def flatten(monkeypatch: pytest.MonkeyPatch) -> Any:
    from ray._common import signature

    monkeypatch.setattr(ray_calls, "hooked", True)
    wrapped = ray_calls._around_flattening(signature.flatten_args)

    def flattened(function: Any, *args: Any, **kwargs: Any) -> Any:
        return signature.recover_args(wrapped(signature.extract_signature(function), args, kwargs))

    return flattened


def work(a: int, b: int = 2) -> None: ...


def nothing() -> None: ...


def test_it_comes_out_as_a_keyword(flatten: Any) -> None:
    assert flatten(work, 1, b=3, **{KEY: {"feature": "x"}}) == ([1], {"b": 3, KEY: {"feature": "x"}})
    assert flatten(nothing, **{KEY: {"feature": "x"}}) == ([], {KEY: {"feature": "x"}})
    assert flatten(work, 1) == ([1], {})


def test_it_does_not_count_as_an_argument(flatten: Any) -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        flatten(work, **{KEY: {"feature": "x"}})


def test_workers_that_do_not_take_it_off_get_none(flatten: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_calls, "hooked", False)
    assert flatten(work, 1, **{KEY: {"feature": "x"}}) == ([1], {})


def test_the_arguments_of_the_caller_are_left_as_they_are() -> None:
    given = {"b": 3}
    with gputrace.attribute_to(feature="search"):
        assert ray_calls._given(given) == {"b": 3, KEY: {"feature": "search"}}
    assert given == {"b": 3}
    # Nothing to carry.
    assert ray_calls._given(given) == given
    assert ray_calls._given(None) is None
