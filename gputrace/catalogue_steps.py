"""The metrics of the steps of model servers; see ``gputrace.catalogue``, which shows them all."""

from __future__ import annotations

from gputrace.catalogue_attributes import (
    FEATURE,
    HW_NAME,
    HW_TYPE,
    MODEL,
    STEP_COEFFICIENT,
    STEP_KIND,
    STEP_PHASE,
    STEP_REGIME,
    STEP_WEIGHTS,
    TENANT,
)
from gputrace.catalogue_kinds import Kind, Metric

_SERVER_FAMILY = (MODEL, HW_TYPE, HW_NAME)
_FAMILY = (FEATURE, TENANT, *_SERVER_FAMILY)
_REGIME_FAMILY = (*_SERVER_FAMILY, STEP_REGIME)

STEPS = Metric(
    "gputrace.steps",
    Kind.COUNTER,
    "{step}",
    "Settled steps of model servers, by how many prompt tokens they computed; but those that serve nobody.",
    _REGIME_FAMILY,
    "gputrace_steps_total",
)
STEP_MEMBERS = Metric(
    "gputrace.step.members",
    Kind.COUNTER,
    "{member}",
    "Sequences in settled steps, by their own feature: over steps, the size of a batch.",
    _FAMILY,
    "gputrace_step_members_total",
)
STEP_TOKENS = Metric(
    "gputrace.step.tokens",
    Kind.COUNTER,
    "{token}",
    "Tokens in settled steps: computed of prompts, those computed once more, computed beyond, and cached.",
    (*_FAMILY, STEP_KIND),
    "gputrace_step_tokens_total",
)
STEP_TIME = Metric(
    "gputrace.step.time",
    Kind.COUNTER,
    "s",
    "Charged device time of settled steps, by phase and by what it was split with.",
    (*_FAMILY, STEP_PHASE, STEP_WEIGHTS),
    "gputrace_step_time_seconds_total",
)
STEP_CACHED_TIME = Metric(
    "gputrace.step.cached.time",
    Kind.COUNTER,
    "s",
    "Device time that prompt tokens from the prefix cache would have taken: an estimate, charged to nobody.",
    _FAMILY,
    "gputrace_step_cached_time_seconds_total",
)
STEP_RECOMPUTED_TIME = Metric(
    "gputrace.step.recomputed.time",
    Kind.COUNTER,
    "s",
    "Of the charged time, what prompt tokens took that were computed once more after a preemption.",
    _FAMILY,
    "gputrace_step_recomputed_time_seconds_total",
)
STEP_WEIGHT = Metric(
    "gputrace.step.weight.value",
    Kind.GAUGE,
    "s",
    "How long one of each takes, as learnt from steps; absent while documented constants weigh.",
    (*_REGIME_FAMILY, STEP_COEFFICIENT),
    "gputrace_step_weight_value_seconds",
)
STEP_WEIGHT_ERROR = Metric(
    "gputrace.step.weight.error",
    Kind.GAUGE,
    "s",
    "Standard error of that; absent where it cannot be told from the others.",
    (*_REGIME_FAMILY, STEP_COEFFICIENT),
    "gputrace_step_weight_error_seconds",
)
STEP_WEIGHT_VERSION = Metric(
    "gputrace.step.weight.version",
    Kind.GAUGE,
    "{version}",
    "How often the weights in force were learnt anew; 0 while documented constants weigh.",
    _REGIME_FAMILY,
    "gputrace_step_weight_version",
)
STEP_WEIGHT_RESIDUAL = Metric(
    "gputrace.step.weight.residual",
    Kind.GAUGE,
    "{ratio}",
    "Median of how far the latest steps were off what the weights expect, as a part of that.",
    _REGIME_FAMILY,
    "gputrace_step_weight_residual",
)
STEP_WEIGHT_STEPS = Metric(
    "gputrace.step.weight.steps",
    Kind.GAUGE,
    "{step}",
    "How many steps the weights are learnt from.",
    _REGIME_FAMILY,
    "gputrace_step_weight_steps",
)
STEP_SHARE_ERROR = Metric(
    "gputrace.step.share.error",
    Kind.GAUGE,
    "{ratio}",
    "Standard error of a feature's share of the steps that were split by learnt weights, 0 to 1.",
    (FEATURE, *_SERVER_FAMILY),
    "gputrace_step_share_error",
)

STEP_METRICS = (
    STEPS,
    STEP_MEMBERS,
    STEP_TOKENS,
    STEP_TIME,
    STEP_CACHED_TIME,
    STEP_RECOMPUTED_TIME,
    STEP_WEIGHT,
    STEP_WEIGHT_ERROR,
    STEP_WEIGHT_VERSION,
    STEP_WEIGHT_RESIDUAL,
    STEP_WEIGHT_STEPS,
    STEP_SHARE_ERROR,
)
