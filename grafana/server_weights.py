"""The row of the model servers' board on the weights that split a step, and how far they may be off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace import catalogue
from gputrace.grafana import recorded
from gputrace.grafana.board import Row, feature_link
from gputrace.grafana.panels import Query, lines, stat
from gputrace.grafana.promql import by, match, ratio
from gputrace.grafana.server_queries import NO_STEPS, SCOPE, SERVERS
from gputrace.grafana.sources import INSTANCE, JOB, labels
from gputrace.grafana.tables import Column, table
from gputrace.grafana.units import RESIDUAL_STEPS, SECONDS, SHARE, SHARE_ERROR, SHARE_ERROR_STEPS, WHOLE

if TYPE_CHECKING:
    from gputrace.catalogue import Metric
    from gputrace.grafana.panels import Panel

_REGIME = (JOB, catalogue.MODEL, catalogue.HW_TYPE, catalogue.HW_NAME, catalogue.STEP_REGIME)
_NOTHING_LEARNT = "No weights are learnt yet: that takes 500 steps"


def row() -> Row:
    """Return the row."""
    return Row(
        "Weights and how far they may be off", (*_split(), *_trust(), *_over_time(), _weights(), _fits())
    )


def learnt(metric: Metric, *per: str) -> str:
    """Return a gauge of the weights, of the process of each service that has learnt from the most steps.

    Args:
        metric: The gauge.
        per: Attributes that tell its series apart, but for the process.
    """
    best = f"topk {by(*_REGIME)}(1, {SERVERS.select(catalogue.STEP_WEIGHT_STEPS)})"
    return f"max {by(*per)}({SERVERS.select(metric)} and on ({labels(INSTANCE, *_REGIME)}) {best})"


def _part(weights: str) -> str:
    """Return the part of all time of steps that was split so, and zero where there is none of it."""
    whole = SERVERS.total(recorded.STEP_TIME)
    part = SERVERS.total(recorded.STEP_TIME, match(catalogue.STEP_WEIGHTS, weights))
    return ratio(f"({part} or 0 * {whole})", whole)


def _split() -> tuple[Panel, ...]:
    return (
        stat(
            "Split by documented constants",
            "Share of the steps' time that was split before there were weights of the server itself, or "
            "while those fitted badly. The sum is right all the same; the shares are rough.",
            _part("constants"),
            SHARE,
            nothing=NO_STEPS,
            width=6,
        ),
        stat(
            "Split in equal parts",
            "Share of the steps' time of which nothing was known to split it by: steps that serve nobody, "
            "and servers whose hook does not say what a step computes. `gputrace doctor` says why.",
            _part("none"),
            SHARE,
            nothing=NO_STEPS,
            width=6,
        ),
    )


def _trust() -> tuple[Panel, ...]:
    return (
        stat(
            "Worst error of a share",
            "Standard error of the share of the feature that is known worst now. From 2.5 points on, do not "
            "bill by it alone: let the server take more steps, of more than one feature.",
            f"max ({SCOPE.select(catalogue.STEP_SHARE_ERROR)})",
            SHARE_ERROR,
            steps=SHARE_ERROR_STEPS,
            nothing=_NOTHING_LEARNT,
            width=6,
        ),
        stat(
            "Worst residual",
            "How far half of the latest steps are off what the weights expect, of the model and the kind of "
            "steps where that is most. Above 25 % documented constants weigh instead.",
            f"max ({SERVERS.select(catalogue.STEP_WEIGHT_RESIDUAL)})",
            SHARE,
            steps=RESIDUAL_STEPS,
            nothing=_NOTHING_LEARNT,
            width=6,
        ),
    )


def _over_time() -> tuple[Panel, ...]:
    per = (catalogue.MODEL, catalogue.STEP_REGIME)
    error = f"max {by(catalogue.FEATURE)}({SCOPE.select(catalogue.STEP_SHARE_ERROR)})"
    residual = f"max {by(*per)}({SERVERS.select(catalogue.STEP_WEIGHT_RESIDUAL)})"
    return (
        lines(
            "Error of shares by feature",
            "Standard error of each feature's share of the steps that learnt weights split, of the process "
            "that knows it worst. It falls with steps, and stays where two kinds of work always come "
            "together.",
            [Query(error, "{{gputrace_feature}}")],
            SHARE_ERROR,
            nothing=_NOTHING_LEARNT,
            links=feature_link(),
        ),
        lines(
            "Residual by model and steps",
            "How far half of the latest steps are off, by how many prompt tokens they compute. A jump is "
            "another batch, another build of the server, or somebody else on its device.",
            [Query(residual, "{{gputrace_model}}: {{gputrace_step_regime}}")],
            SHARE,
            steps=RESIDUAL_STEPS,
            nothing=_NOTHING_LEARNT,
        ),
    )


def _names() -> tuple[Column, ...]:
    return (
        Column("Model", label="gputrace_model"),
        Column("Service", label="job"),
        Column("Device", label="hw_name"),
        Column("Prompt tokens", label="gputrace_step_regime"),
    )


def _weights() -> Panel:
    per = (*_REGIME, catalogue.STEP_COEFFICIENT)
    # What a kind of steps never does takes no time in it: 0 would say that it is free.
    value = f"{learnt(catalogue.STEP_WEIGHT, *per)} > 0"
    error = learnt(catalogue.STEP_WEIGHT_ERROR, *per)
    columns = (
        *_names(),
        Column("One", label="gputrace_step_coefficient"),
        Column("Takes", value, unit=SECONDS),
        Column("±", error, unit=SECONDS),
        Column("± of it", ratio(error, learnt(catalogue.STEP_WEIGHT, *per)), unit=SHARE),
    )
    return table(
        "Weights",
        "How long one of each takes, as learnt: `fixed` is a step itself, `prefill` a prompt token, "
        "`decode` a token beyond, `context` a token that those read, `pairs` a thousand pairs of a prompt "
        "token and what it attends to. Without `±` it cannot be told from the others; without a row "
        "it takes no time that could be seen. Of the process with the most steps.",
        columns,
        sort="Takes",
        hidden=("hw_type",),
        height=12,
        nothing=_NOTHING_LEARNT,
    )


def _fits() -> Panel:
    columns = (
        *_names(),
        Column("Steps", learnt(catalogue.STEP_WEIGHT_STEPS, *_REGIME), unit=WHOLE),
        Column(
            "Residual",
            learnt(catalogue.STEP_WEIGHT_RESIDUAL, *_REGIME),
            unit=SHARE,
            steps=RESIDUAL_STEPS,
        ),
        Column("Version", learnt(catalogue.STEP_WEIGHT_VERSION, *_REGIME), unit=WHOLE),
    )
    return table(
        "What they are learnt from",
        "Steps behind the weights, by how many prompt tokens a step computes, how far half of the latest "
        "are off, and how often the weights were learnt anew. Version 0 means that documented constants "
        "weigh: too few steps, or too far off.",
        columns,
        sort="Steps",
        hidden=("hw_type",),
        height=8,
        nothing=_NOTHING_LEARNT,
    )
