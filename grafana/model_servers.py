"""What model servers spend on whom, how well they batch and what they compute in vain: for ML engineers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.grafana import recorded, server_caches, server_weights
from gputrace.grafana.board import Board, Row, feature_link
from gputrace.grafana.panels import Query, lines, shares, stat
from gputrace.grafana.promql import match, ratio
from gputrace.grafana.server_queries import (
    COMPUTED,
    NO_PRICE,
    NO_STEPS,
    SCOPE,
    SERVERS,
    money,
    of_model,
    priced,
)
from gputrace.grafana.sources import labels
from gputrace.grafana.tables import Column, table
from gputrace.grafana.units import (
    COUNT,
    FOR_MONEY,
    KIND_COLOURS,
    MONEY,
    PER_SECOND,
    PHASE_COLOURS,
    SHARE,
    SHARE_ERROR,
    STEP_HOURS,
    WHOLE,
)

if TYPE_CHECKING:
    from gputrace.grafana.panels import Panel

_MODEL, _FEATURE = (catalogue.MODEL,), (catalogue.FEATURE,)
_PHASE, _REGIME = (catalogue.STEP_PHASE,), (catalogue.STEP_REGIME,)
_PREFILL = match(catalogue.STEP_PHASE, "prefill")
_KNOWN = match(catalogue.STEP_PHASE, "prefill|decode", "=~")
#: With a legend of four lines, none of which is to be looked for.
_FOUR_LINES = 12
_TIME = SCOPE.total(recorded.STEP_TIME)
_TOKENS = SCOPE.total(recorded.STEP_TOKENS, COMPUTED)


def _spend() -> Row:
    return Row("What the servers spend", (*_hours(), *_prices(), *_over_time(), _features(), _tenants()))


def _hours() -> tuple[Panel, ...]:
    return (
        stat(
            "Device hours of steps",
            "Device time that the steps of model servers were charged, by the features chosen above. "
            "Each step's own time, split over the sequences in it: never the sum of what requests "
            "waited.",
            f"{_TIME} / 3600",
            STEP_HOURS,
            nothing=NO_STEPS,
        ),
        stat(
            "Time on prompts",
            "Share of the charged time that went to prompt tokens, of all that went to tokens. Much of "
            "it means long prompts: shorten them, or let them share a cached beginning.",
            ratio(SCOPE.total(recorded.STEP_TIME, _PREFILL), SCOPE.total(recorded.STEP_TIME, _KNOWN)),
            SHARE,
            nothing="No step is known by its tokens",
        ),
        stat(
            "Tokens a device second",
            "Prompt tokens computed and tokens generated, for each second charged. It rises with larger "
            "batches; compare a model with itself, before and after a change.",
            ratio(_TOKENS, _TIME),
            PER_SECOND,
            nothing=NO_STEPS,
        ),
    )


def _prices() -> tuple[Panel, ...]:
    spent = money(recorded.STEP_TIME)
    tokens = priced(recorded.STEP_TOKENS, COMPUTED)
    return (
        stat(
            "Spend of steps ($currency)",
            "That time at what a second of the same model on the same devices cost. Devices without a "
            "price are not in it: telemetry health counts them.",
            spent,
            MONEY,
            nothing=NO_PRICE,
        ),
        stat(
            "Tokens for 1 $currency",
            "Prompt tokens computed and tokens generated for one of the currency, where devices have a "
            "price. Cached tokens cost nothing and are not counted.",
            ratio(tokens, spent),
            FOR_MONEY,
            nothing=NO_PRICE,
        ),
        stat(
            "A million tokens ($currency)",
            "The same the other way round, as providers price theirs: what a million computed tokens cost.",
            f"1000 * 1000 * {ratio(spent, tokens)}",
            MONEY,
            nothing=NO_PRICE,
        ),
    )


def _over_time() -> tuple[Panel, ...]:
    return (
        lines(
            "Device time by feature",
            "How many devices' worth of time the steps of each feature are charged. Where one grows, the "
            "next panel says whether its prompts or its answers did.",
            [Query(SCOPE.now(recorded.STEP_TIME, per=_FEATURE), "{{gputrace_feature}}")],
            COUNT,
            width=9,
            stacked=True,
            nothing=NO_STEPS,
            links=feature_link(),
        ),
        lines(
            "Prefill against decode",
            "How many devices' worth of time goes to prompt tokens, to tokens beyond, and to steps that "
            "serve nobody or of which nothing is known.",
            [Query(SCOPE.now(recorded.STEP_TIME, per=_PHASE), "{{gputrace_step_phase}}")],
            COUNT,
            width=9,
            stacked=True,
            colours=PHASE_COLOURS,
            nothing=NO_STEPS,
        ),
        shares(
            "Device time by model",
            "Which models the servers' time went to in the range, by the features chosen above.",
            Query(
                f"sort_desc({SCOPE.total(recorded.STEP_TIME, per=_MODEL)} / 3600)",
                "{{gputrace_model}}",
                instant=True,
            ),
            STEP_HOURS,
            nothing=NO_STEPS,
        ),
    )


def _features() -> Panel:
    row = (*_MODEL, *_FEATURE)
    time = SCOPE.total(recorded.STEP_TIME, per=row)
    tokens = SCOPE.total(recorded.STEP_TOKENS, COMPUTED, per=row)
    error = f"max by ({labels(*row)}) ({SCOPE.select(catalogue.STEP_SHARE_ERROR)})"
    link = feature_link("${__value.text}")[0]
    columns = (
        Column("Feature", label="gputrace_feature", link=link),
        Column("Model", label="gputrace_model"),
        Column("Device hours", f"{time} / 3600", unit=STEP_HOURS, bar=True, width=150),
        Column("Of its model", of_model(time), unit=SHARE),
        Column("±", error, unit=SHARE_ERROR),
        Column("Money", money(recorded.STEP_TIME, per=row), unit=MONEY),
        Column(
            "On prompts", ratio(SCOPE.total(recorded.STEP_TIME, _PREFILL, per=row), f"({time})"), unit=SHARE
        ),
        Column("Tokens", tokens, unit=WHOLE),
        Column("A device second", ratio(tokens, time), unit=PER_SECOND, width=125),
    )
    return table(
        "Features on their models ($currency)",
        "Who spends the servers. `Of its model` is the feature's share of all time of that model; `±` is "
        "the standard error of the share, of the weights alone, where learnt weights split it: the largest "
        "of all processes. Features whose shares differ by less than that cannot be told apart.",
        columns,
        sort="Device hours",
        nothing=NO_STEPS,
    )


def _tenants() -> Panel:
    row = (*_FEATURE, catalogue.TENANT)
    tenants = match(catalogue.TENANT, "", "!=")
    time = SCOPE.increase(catalogue.STEP_TIME, tenants, per=row)
    tokens = SCOPE.increase(catalogue.STEP_TOKENS, COMPUTED, tenants, per=row)
    on_prompts = SCOPE.increase(catalogue.STEP_TIME, _PREFILL, tenants, per=row)
    columns = (
        Column("Tenant", label="gputrace_tenant"),
        Column("Feature", label="gputrace_feature"),
        Column("Device hours", f"topk(20, {time}) / 3600", unit=STEP_HOURS, bar=True, width=170),
        Column("Tokens", tokens, unit=WHOLE),
        Column("On prompts", ratio(on_prompts, time), unit=SHARE),
    )
    return table(
        "Tenants",
        "The twenty tenants of a feature that the servers spend most on, where metrics show tenants; rare "
        "ones are one. Read from the processes themselves, so a long range takes a while.",
        columns,
        sort="Device hours",
        nothing="No tenants: configure(metric_attributes=['tenant']) shows them",
    )


def _batches() -> Row:
    return Row("Batches", (*_sequences(), *_speeds(), _efficiency()))


def _sequences() -> tuple[Panel, ...]:
    of_all = ratio(SERVERS.now(recorded.STEP_MEMBERS, per=_MODEL), SERVERS.now(recorded.STEPS, per=_MODEL))
    members, steps = SCOPE.now(recorded.STEP_MEMBERS, per=_FEATURE), SERVERS.now(recorded.STEPS)
    return (
        lines(
            "Sequences a step, by model",
            "How many sequences share a step in the mean, of all features: the size of a batch. Near "
            "one, the server's weights are read for one request alone: send more at once, or share the "
            "server.",
            [Query(of_all, "{{gputrace_model}}")],
            COUNT,
            nothing=NO_STEPS,
        ),
        lines(
            "Sequences a step, by feature",
            "Whose sequences fill the mean step of the chosen models. A feature that is charged much "
            "and stands low here has long sequences, or runs where few others do.",
            [Query(f"{members} / on () group_left () ({steps} > 0)", "{{gputrace_feature}}")],
            COUNT,
            stacked=True,
            nothing=NO_STEPS,
            links=feature_link(),
        ),
    )


def _speeds() -> tuple[Panel, ...]:
    kinds = SCOPE.now(recorded.STEP_TOKENS, per=(catalogue.STEP_KIND,))
    return (
        lines(
            "Steps a second by prompt tokens",
            "Steps of the chosen models, by how many prompt tokens they compute: steps of none only "
            "generate, and large ones make those wait who are being answered.",
            [Query(SERVERS.now(recorded.STEPS, per=_REGIME), "{{gputrace_step_regime}} prompt tokens")],
            PER_SECOND,
            width=8,
            height=_FOUR_LINES,
            stacked=True,
            nothing=NO_STEPS,
        ),
        lines(
            "Tokens a second by kind",
            "Computed of prompts, generated, and taken from the cache. Recomputed ones are among those "
            "computed of prompts, so nothing is stacked.",
            [Query(kinds, "{{gputrace_step_kind}}")],
            PER_SECOND,
            width=8,
            height=_FOUR_LINES,
            colours=KIND_COLOURS,
            nothing=NO_STEPS,
        ),
    )


def _efficiency() -> Panel:
    tokens = SERVERS.now(recorded.STEP_TOKENS, COMPUTED, per=_MODEL)
    time = SERVERS.now(recorded.STEP_TIME, per=_MODEL)
    return lines(
        "Tokens a device second, by model",
        "Computed tokens of all features for each second charged. A fall at a deploy mark is the "
        "deploy's doing; a fall with the batch above is a lack of load.",
        [Query(ratio(tokens, time), "{{gputrace_model}}")],
        PER_SECOND,
        width=8,
        height=_FOUR_LINES,
        nothing=NO_STEPS,
    )


def board() -> Board:
    """Return the board."""
    return Board(
        "gputrace-servers",
        "For ML platform engineers: whom a model server's steps serve, how full they are, what caches save "
        "and preemptions waste, and how far the split may be off.",
        SCOPE,
        (_spend(), _batches(), server_caches.row(), server_weights.row()),
        start="now-24h",
    )
