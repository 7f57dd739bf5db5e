"""The row of the model servers' board on what was not computed, and what was computed twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.grafana import recorded
from gputrace.grafana.board import Row, feature_link
from gputrace.grafana.panels import Query, lines, stat
from gputrace.grafana.promql import match, ratio
from gputrace.grafana.server_queries import NO_PRICE, NO_STEPS, SCOPE, money
from gputrace.grafana.units import COUNT, KIND_COLOURS, MONEY, PER_SECOND, SHARE, STEP_HOURS

if TYPE_CHECKING:
    from gputrace.grafana.panels import Panel

_CACHED = match(catalogue.STEP_KIND, "cached")
_RECOMPUTED = match(catalogue.STEP_KIND, "recomputed")
_COMPUTED = match(catalogue.STEP_KIND, "prefill")
_OF_PROMPTS = match(catalogue.STEP_KIND, "prefill|cached", "=~")
_FEATURE = (catalogue.FEATURE,)
_NOT_CACHED = "Nothing came from the cache"
_NOT_TWICE = "Nothing was computed twice"


def row() -> Row:
    """Return the row."""
    return Row("Caches and recomputation", (*_cached(), *_recomputed(), *_over_time()))


def _cached() -> tuple[Panel, ...]:
    tokens = ratio(SCOPE.total(recorded.STEP_TOKENS, _CACHED), SCOPE.total(recorded.STEP_TOKENS, _OF_PROMPTS))
    return (
        stat(
            "From the cache",
            "Share of prompt tokens that the prefix cache had. They are charged to nobody. Low where "
            "prompts begin alike: put what is common first, and keep requests of a feature on one server.",
            tokens,
            SHARE,
            nothing=_NOT_CACHED,
        ),
        stat(
            "Saved by caches",
            "How many device hours cached tokens would have taken, by the weights that split their steps: "
            "an estimate. It is no part of what is charged.",
            f"{SCOPE.total(recorded.STEP_CACHED_TIME)} / 3600",
            STEP_HOURS,
            nothing=_NOT_CACHED,
        ),
        stat(
            "Saved by caches ($currency)",
            "The same at what a second of the model cost on those devices. Hold it against what the memory "
            "of a larger cache costs.",
            money(recorded.STEP_CACHED_TIME),
            MONEY,
            nothing=NO_PRICE,
        ),
    )


def _recomputed() -> tuple[Panel, ...]:
    tokens = ratio(
        SCOPE.total(recorded.STEP_TOKENS, _RECOMPUTED), SCOPE.total(recorded.STEP_TOKENS, _COMPUTED)
    )
    return (
        stat(
            "Computed twice",
            "Share of computed prompt tokens that had been computed before, and were lost when their "
            "request had to make room. Give the cache more memory, or admit fewer requests at once.",
            tokens,
            SHARE,
            nothing=_NOT_TWICE,
        ),
        stat(
            "Recomputation",
            "How many device hours they took. It is charged to the requests that had to make room, not to "
            "those that they made room for.",
            f"{SCOPE.total(recorded.STEP_RECOMPUTED_TIME)} / 3600",
            STEP_HOURS,
            nothing=_NOT_TWICE,
        ),
        stat(
            "Recomputation ($currency)",
            "The same at what a second of the model cost on those devices: what preemptions cost in the "
            "range.",
            money(recorded.STEP_RECOMPUTED_TIME),
            MONEY,
            nothing=NO_PRICE,
        ),
    )


def _over_time() -> tuple[Panel, ...]:
    kinds = SCOPE.now(recorded.STEP_TOKENS, _OF_PROMPTS, per=(catalogue.STEP_KIND,))
    return (
        lines(
            "Where prompt tokens come from",
            "Prompt tokens a second that were computed, and that the cache had. Where the cached part falls "
            "and traffic does not, prompts changed their beginning or the cache is too small.",
            [Query(kinds, "{{gputrace_step_kind}}")],
            PER_SECOND,
            width=8,
            stacked=True,
            colours=KIND_COLOURS,
            nothing=NO_STEPS,
        ),
        lines(
            "Device time that caches save, by feature",
            "How many devices' worth of time cached tokens would have taken, by whose they are: an estimate.",
            [Query(SCOPE.now(recorded.STEP_CACHED_TIME, per=_FEATURE), "{{gputrace_feature}}")],
            COUNT,
            width=8,
            stacked=True,
            nothing=_NOT_CACHED,
            links=feature_link(),
        ),
        lines(
            "Device time of recomputation, by feature",
            "How many devices' worth of time goes to tokens that were computed before, by who had to make "
            "room.",
            [Query(SCOPE.now(recorded.STEP_RECOMPUTED_TIME, per=_FEATURE), "{{gputrace_feature}}")],
            COUNT,
            width=8,
            stacked=True,
            nothing=_NOT_TWICE,
            links=feature_link(),
        ),
    )
