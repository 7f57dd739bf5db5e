"""Every metric and attribute that gputrace emits, as data.

Code, documentation, dashboards and tests read this module, so that a name is
written once. Instruments follow the OpenTelemetry semantic conventions:
``hw.*`` and ``service.*`` are reused as they are, everything of our own lives
under ``gputrace.``.

Units are UCUM codes: ``s`` seconds, ``J`` joules, ``By`` bytes; ``{call}`` and
the like are annotations that carry no dimension.
"""

from __future__ import annotations

from gputrace.catalogue_attributes import (
    ATTRIBUTES as ATTRIBUTES,
    BATCH_PADDING as BATCH_PADDING,
    BATCH_SIZE as BATCH_SIZE,
    BUILD_VERSION as BUILD_VERSION,
    CALL_DEVICE_TIME as CALL_DEVICE_TIME,
    CALL_HELD_TIME as CALL_HELD_TIME,
    CALL_ID as CALL_ID,
    CALL_STATUSES as CALL_STATUSES,
    CURRENCY as CURRENCY,
    DEVICE_STATE as DEVICE_STATE,
    DEVICE_STATES as DEVICE_STATES,
    ENERGY_SOURCE as ENERGY_SOURCE,
    ENERGY_SOURCES as ENERGY_SOURCES,
    ENERGY_SPLIT as ENERGY_SPLIT,
    ENERGY_SPLITS as ENERGY_SPLITS,
    ERROR_TYPE as ERROR_TYPE,
    ESCALATION_AUDIT_DRAWN as ESCALATION_AUDIT_DRAWN,
    ESCALATION_AUDIT_PROPENSITY as ESCALATION_AUDIT_PROPENSITY,
    ESCALATION_AUDIT_REASON as ESCALATION_AUDIT_REASON,
    ESCALATION_BOUND as ESCALATION_BOUND,
    ESCALATION_CASCADE as ESCALATION_CASCADE,
    ESCALATION_CONFIDENCE as ESCALATION_CONFIDENCE,
    ESCALATION_DECISION as ESCALATION_DECISION,
    ESCALATION_ENCLOSING_ID as ESCALATION_ENCLOSING_ID,
    ESCALATION_EXCLUDED as ESCALATION_EXCLUDED,
    ESCALATION_HEAVY_COST as ESCALATION_HEAVY_COST,
    ESCALATION_HEAVY_ENERGY as ESCALATION_HEAVY_ENERGY,
    ESCALATION_HEAVY_TIME as ESCALATION_HEAVY_TIME,
    ESCALATION_INPUT_SIZE as ESCALATION_INPUT_SIZE,
    ESCALATION_LIGHT_COST as ESCALATION_LIGHT_COST,
    ESCALATION_LIGHT_ENERGY as ESCALATION_LIGHT_ENERGY,
    ESCALATION_LIGHT_STAGE as ESCALATION_LIGHT_STAGE,
    ESCALATION_LIGHT_TIME as ESCALATION_LIGHT_TIME,
    ESCALATION_POLICY as ESCALATION_POLICY,
    ESCALATION_QUANTITY as ESCALATION_QUANTITY,
    ESCALATION_REASON as ESCALATION_REASON,
    ESCALATION_SURER as ESCALATION_SURER,
    ESCALATION_THRESHOLD_VALUE as ESCALATION_THRESHOLD_VALUE,
    FEATURE as FEATURE,
    HTTP_ROUTE as HTTP_ROUTE,
    HW_ID as HW_ID,
    HW_NAME as HW_NAME,
    HW_PARENT as HW_PARENT,
    HW_TYPE as HW_TYPE,
    LOSS_REASON as LOSS_REASON,
    MODEL as MODEL,
    NO_FEATURE as NO_FEATURE,
    OPERATION as OPERATION,
    OTHER as OTHER,
    OUTCOME_NAME as OUTCOME_NAME,
    OUTCOME_VALUE as OUTCOME_VALUE,
    OVERHEAD as OVERHEAD,
    PRICE_DATE as PRICE_DATE,
    PRICE_KIND as PRICE_KIND,
    PRICE_SKU as PRICE_SKU,
    PRICE_SOURCE as PRICE_SOURCE,
    PUBLISHER as PUBLISHER,
    REQUEST_CALLS_ATTRIBUTE as REQUEST_CALLS_ATTRIBUTE,
    REQUEST_COST_ATTRIBUTE as REQUEST_COST_ATTRIBUTE,
    REQUEST_ID as REQUEST_ID,
    RESERVED_PREFIX as RESERVED_PREFIX,
    SCORE_LABEL_PROPENSITY as SCORE_LABEL_PROPENSITY,
    SCORE_NAME as SCORE_NAME,
    SCORE_VALUE as SCORE_VALUE,
    SHARED as SHARED,
    SIMULATED as SIMULATED,
    SIMULATION as SIMULATION,
    STAGE as STAGE,
    STATUS as STATUS,
    STEP_COEFFICIENT as STEP_COEFFICIENT,
    STEP_COEFFICIENTS as STEP_COEFFICIENTS,
    STEP_KIND as STEP_KIND,
    STEP_KINDS as STEP_KINDS,
    STEP_PHASE as STEP_PHASE,
    STEP_PHASES as STEP_PHASES,
    STEP_REGIME as STEP_REGIME,
    STEP_REGIMES as STEP_REGIMES,
    STEP_WEIGHINGS as STEP_WEIGHINGS,
    STEP_WEIGHTS as STEP_WEIGHTS,
    TENANT as TENANT,
    TIME_SOURCE as TIME_SOURCE,
    TIME_SOURCES as TIME_SOURCES,
    UNIT_NAME as UNIT_NAME,
    VARIANT as VARIANT,
    Attribute as Attribute,
)
from gputrace.catalogue_escalation import (
    DECISION_EVENT as DECISION_EVENT,
    ESCALATION_BOUNDS as ESCALATION_BOUNDS,
    ESCALATION_COST as ESCALATION_COST,
    ESCALATION_DECISIONS as ESCALATION_DECISIONS,
    ESCALATION_ESTIMATE as ESCALATION_ESTIMATE,
    ESCALATION_REQUESTS as ESCALATION_REQUESTS,
    ESCALATION_THRESHOLD as ESCALATION_THRESHOLD,
    ESCALATION_TIME as ESCALATION_TIME,
    SCORE as SCORE,
    SCORE_BUCKETS as SCORE_BUCKETS,
    SCORE_EVENT as SCORE_EVENT,
)
from gputrace.catalogue_hardware import (
    HW_ENERGY as HW_ENERGY,
    HW_ERRORS as HW_ERRORS,
    HW_GPU_MEMORY_LIMIT as HW_GPU_MEMORY_LIMIT,
    HW_GPU_MEMORY_USAGE as HW_GPU_MEMORY_USAGE,
    HW_GPU_UTILIZATION as HW_GPU_UTILIZATION,
    HW_POWER as HW_POWER,
    HW_TEMPERATURE as HW_TEMPERATURE,
)
from gputrace.catalogue_kinds import Kind as Kind, Metric as Metric
from gputrace.catalogue_outcomes import OUTCOMES as OUTCOMES, UNITS as UNITS
from gputrace.catalogue_requests import (
    BATCH_MEMBERS as BATCH_MEMBERS,
    REQUEST_CALLS as REQUEST_CALLS,
    REQUEST_COST as REQUEST_COST,
    REQUEST_TIME as REQUEST_TIME,
    REQUESTS as REQUESTS,
)
from gputrace.catalogue_sdk import (
    SDK_FAULTS as SDK_FAULTS,
    SDK_FOLDED as SDK_FOLDED,
    SDK_LOST as SDK_LOST,
    SDK_QUEUE_LENGTH as SDK_QUEUE_LENGTH,
    SDK_UNMEASURED as SDK_UNMEASURED,
    SDK_UNPRICED_TIME as SDK_UNPRICED_TIME,
    SDK_UNTRUSTED as SDK_UNTRUSTED,
)
from gputrace.catalogue_steps import (
    STEP_CACHED_TIME as STEP_CACHED_TIME,
    STEP_MEMBERS as STEP_MEMBERS,
    STEP_METRICS as STEP_METRICS,
    STEP_RECOMPUTED_TIME as STEP_RECOMPUTED_TIME,
    STEP_SHARE_ERROR as STEP_SHARE_ERROR,
    STEP_TIME as STEP_TIME,
    STEP_TOKENS as STEP_TOKENS,
    STEP_WEIGHT as STEP_WEIGHT,
    STEP_WEIGHT_ERROR as STEP_WEIGHT_ERROR,
    STEP_WEIGHT_RESIDUAL as STEP_WEIGHT_RESIDUAL,
    STEP_WEIGHT_STEPS as STEP_WEIGHT_STEPS,
    STEP_WEIGHT_VERSION as STEP_WEIGHT_VERSION,
    STEPS as STEPS,
)

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
SCOPE_NAME = "gputrace"
#: Name of the span that an outcome leaves where its process does not know the request.
OUTCOME_SPAN = "gputrace.outcome"

# Buckets fit for calls between 100 microseconds and 100 seconds: 1-2-5 steps.
DURATION_BUCKETS_S = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
    0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0,
)  # fmt: skip


_FEATURE_FAMILY = (FEATURE, OPERATION, MODEL, VARIANT, STAGE, TENANT, TIME_SOURCE, HW_TYPE, HW_NAME)
_CALL_FAMILY = (FEATURE, OPERATION, MODEL, VARIANT, STAGE, TENANT, STATUS, TIME_SOURCE, HW_TYPE, HW_NAME)
_DEVICE_FAMILY = (HW_ID, HW_TYPE, HW_NAME, HW_PARENT, PUBLISHER)
_ALONE_FAMILY = (FEATURE, HW_TYPE, HW_NAME)

FEATURE_TIME = Metric(
    "gputrace.feature.time",
    Kind.COUNTER,
    "s",
    "Charged device time by product feature. Additive: equals the time devices were held.",
    _FEATURE_FAMILY,
    "gputrace_feature_time_seconds_total",
)
FEATURE_COST = Metric(
    "gputrace.feature.cost",
    Kind.COUNTER,
    "{currency}",
    "Charged device time times the price of the device at that moment.",
    (*_FEATURE_FAMILY, CURRENCY),
    "gputrace_feature_cost_total",
)
FEATURE_ENERGY = Metric(
    "gputrace.feature.energy",
    Kind.COUNTER,
    "J",
    "Measured energy of the device, shared by charged time.",
    (*_FEATURE_FAMILY, ENERGY_SOURCE, ENERGY_SPLIT),
    "gputrace_feature_energy_joules_total",
)
DEVICE_TIME = Metric(
    "gputrace.device.time",
    Kind.COUNTER,
    "s",
    "Wall time of a device by state. The states of a device sum to wall time.",
    (*_DEVICE_FAMILY, DEVICE_STATE),
    "gputrace_device_time_seconds_total",
)
DEVICE_COST = Metric(
    "gputrace.device.cost",
    Kind.COUNTER,
    "{currency}",
    "What the device cost, by state.",
    (*_DEVICE_FAMILY, DEVICE_STATE, CURRENCY),
    "gputrace_device_cost_total",
)
DEVICE_ENERGY = Metric(
    "gputrace.device.energy",
    Kind.COUNTER,
    "J",
    "What the device drew, by state.",
    (*_DEVICE_FAMILY, DEVICE_STATE, ENERGY_SOURCE, ENERGY_SPLIT),
    "gputrace_device_energy_joules_total",
)
DEVICE_PRICE = Metric(
    "gputrace.device.price",
    Kind.GAUGE,
    "{currency}/h",
    "Price of the device in force, an hour.",
    (*_DEVICE_FAMILY, CURRENCY),
    "gputrace_device_price_per_hour",
)
DEVICE_OVERLAP_TIME = Metric(
    "gputrace.device.overlap.time",
    Kind.COUNTER,
    "s",
    "Device time that more than one process charged at once.",
    _DEVICE_FAMILY,
    "gputrace_device_overlap_time_seconds_total",
)
DEVICE_UNTRACKED_UPPER_TIME = Metric(
    "gputrace.device.untracked.upper.time",
    Kind.COUNTER,
    "s",
    "Upper bound of untracked time: as if tracked calls computed nothing while others did.",
    _DEVICE_FAMILY,
    "gputrace_device_untracked_upper_time_seconds_total",
)
FEATURE_ALONE_TIME = Metric(
    "gputrace.feature.alone.time",
    Kind.COUNTER,
    "s",
    "Length of the sample periods in which a feature alone held at least 95 % of a device.",
    _ALONE_FAMILY,
    "gputrace_feature_alone_time_seconds_total",
)
FEATURE_ALONE_BUSY_TIME = Metric(
    "gputrace.feature.alone.busy.time",
    Kind.COUNTER,
    "s",
    "How much of those periods the device was busy: over their length, the feature's busy share.",
    _ALONE_FAMILY,
    "gputrace_feature_alone_busy_time_seconds_total",
)
FEATURE_ALONE_PERIODS = Metric(
    "gputrace.feature.alone.periods",
    Kind.COUNTER,
    "{period}",
    "How many such periods there were; under ten there is no busy share.",
    _ALONE_FAMILY,
    "gputrace_feature_alone_periods_total",
)
PRICE_INFO = Metric(
    "gputrace.price.info",
    Kind.GAUGE,
    "{price}",
    "1 for the price in force of each device: which offer it is, where it is from, and of which day.",
    (HW_ID, HW_NAME, CURRENCY, PRICE_SKU, PRICE_KIND, PRICE_SOURCE, PRICE_DATE),
    "gputrace_price_info",
)
BUDGET = Metric(
    "gputrace.budget",
    Kind.GAUGE,
    "{currency}",
    "What a feature may spend in a calendar month.",
    (FEATURE, CURRENCY),
    "gputrace_budget",
)
BUILD_INFO = Metric(
    "gputrace.build.info",
    Kind.GAUGE,
    "{process}",
    "1 for each process that runs gputrace, by its version.",
    (BUILD_VERSION,),
    "gputrace_build_info",
)
NVML_UP = Metric(
    "gputrace.nvml.up",
    Kind.GAUGE,
    "{library}",
    "1 where the driver's management library answers, 0 where it does not.",
    (PUBLISHER,),
    "gputrace_nvml_up",
)
CALLS = Metric(
    "gputrace.calls",
    Kind.COUNTER,
    "{call}",
    "Finished calls by status.",
    _CALL_FAMILY,
    "gputrace_calls_total",
)
CALL_DURATION = Metric(
    "gputrace.call.duration",
    Kind.HISTOGRAM,
    "s",
    "Wall time of a finished call.",
    _CALL_FAMILY,
    "gputrace_call_duration_seconds",
)
CALL_DEVICE_TIME_HISTOGRAM = Metric(
    "gputrace.call.device.time",
    Kind.HISTOGRAM,
    "s",
    "Charged device time of a finished call.",
    _CALL_FAMILY,
    "gputrace_call_device_time_seconds",
)
METRICS = (
    FEATURE_TIME,
    FEATURE_COST,
    FEATURE_ENERGY,
    DEVICE_TIME,
    DEVICE_COST,
    DEVICE_ENERGY,
    DEVICE_PRICE,
    DEVICE_OVERLAP_TIME,
    DEVICE_UNTRACKED_UPPER_TIME,
    FEATURE_ALONE_TIME,
    FEATURE_ALONE_BUSY_TIME,
    FEATURE_ALONE_PERIODS,
    PRICE_INFO,
    BUDGET,
    BUILD_INFO,
    NVML_UP,
    CALLS,
    CALL_DURATION,
    CALL_DEVICE_TIME_HISTOGRAM,
    REQUESTS,
    REQUEST_CALLS,
    REQUEST_TIME,
    REQUEST_COST,
    BATCH_MEMBERS,
    *STEP_METRICS,
    OUTCOMES,
    UNITS,
    ESCALATION_REQUESTS,
    ESCALATION_TIME,
    ESCALATION_COST,
    ESCALATION_THRESHOLD,
    ESCALATION_ESTIMATE,
    SCORE,
    SDK_LOST,
    SDK_QUEUE_LENGTH,
    SDK_UNMEASURED,
    SDK_UNPRICED_TIME,
    SDK_FOLDED,
    SDK_UNTRUSTED,
    SDK_FAULTS,
    HW_GPU_UTILIZATION,
    HW_GPU_MEMORY_USAGE,
    HW_GPU_MEMORY_LIMIT,
    HW_ENERGY,
    HW_POWER,
    HW_TEMPERATURE,
    HW_ERRORS,
)
