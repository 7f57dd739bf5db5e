"""Every metric and attribute that gputrace emits, as data.

Code, documentation, dashboards and tests read this module, so that a name is
written once. Instruments follow the OpenTelemetry semantic conventions:
``hw.*`` and ``service.*`` are reused as they are, everything of our own lives
under ``gputrace.``.

Units are UCUM codes: ``s`` seconds, ``J`` joules, ``By`` bytes; ``{call}`` and
the like are annotations that carry no dimension.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
SCOPE_NAME = "gputrace"

# --- attribute names -------------------------------------------------------

FEATURE = "gputrace.feature"
OPERATION = "gputrace.operation"
MODEL = "gputrace.model"
VARIANT = "gputrace.variant"
STAGE = "gputrace.stage"
TENANT = "gputrace.tenant"
STATUS = "gputrace.status"
TIME_SOURCE = "gputrace.time.source"
CURRENCY = "gputrace.currency"
DEVICE_STATE = "gputrace.device.state"
PUBLISHER = "gputrace.publisher"
LOSS_REASON = "gputrace.sdk.reason"
CALL_ID = "gputrace.call.id"
CALL_DEVICE_TIME = "gputrace.call.device.time"
CALL_HELD_TIME = "gputrace.call.held.time"
ERROR_TYPE = "error.type"
HW_ID = "hw.id"
HW_NAME = "hw.name"
HW_TYPE = "hw.type"

# --- reserved values -------------------------------------------------------

NO_FEATURE = "__none__"
OTHER = "__other__"
RESERVED_PREFIX = "__"

CALL_STATUSES = ("ok", "error", "cancelled")
DEVICE_STATES = ("charged", "untracked", "idle", "unknown")
TIME_SOURCES = ("cuda_event", "kernel", "host", "estimated", "unknown")

# Buckets fit for calls between 100 microseconds and 100 seconds: 1-2-5 steps.
DURATION_BUCKETS_S = (
    0.0001,
    0.0002,
    0.0005,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    20.0,
    50.0,
    100.0,
)


class Kind(enum.Enum):
    """The instrument a metric is recorded with."""

    COUNTER = "counter"
    GAUGE = "gauge"
    UP_DOWN_COUNTER = "up_down_counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: what it is called, how it is counted, what it means.

    Attributes:
        name: OpenTelemetry name.
        kind: The instrument.
        unit: UCUM unit.
        description: What one unit of it means, for the reader of a board.
        attributes: The closed set of attribute names its points may carry.
        prometheus: The name under which Prometheus shows it, with the
            standard suffixes.
    """

    name: str
    kind: Kind
    unit: str
    description: str
    attributes: tuple[str, ...]
    prometheus: str


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of a metric or span, and what its values mean."""

    name: str
    description: str
    opt_in: bool = False


ATTRIBUTES = (
    Attribute(FEATURE, "Product feature that the work is billed to; `__none__` when nobody named one."),
    Attribute(OPERATION, "What ran: the name given to `track` or `span`, else the qualified name."),
    Attribute(MODEL, "Model that did the work."),
    Attribute(VARIANT, "Variant of the model: precision, adapter, prompt version."),
    Attribute(STAGE, "Stage of a cascade or pipeline."),
    Attribute(TENANT, "Customer that the work is billed to. On metrics only when asked for.", opt_in=True),
    Attribute(STATUS, "How a call ended: `ok`, `error` or `cancelled`."),
    Attribute(
        TIME_SOURCE, "How the time was obtained: `cuda_event`, `kernel`, `host`, `estimated` or `unknown`."
    ),
    Attribute(CURRENCY, "Currency of a price or cost, ISO 4217. Two currencies are never added."),
    Attribute(DEVICE_STATE, "What the device's time went to: `charged`, `untracked`, `idle` or `unknown`."),
    Attribute(PUBLISHER, "The process that reads the device. Readers take one publisher per device."),
    Attribute(LOSS_REASON, "Why the SDK lost or could not measure something."),
    Attribute(CALL_ID, "Identity of a call, on spans and log records."),
    Attribute(CALL_DEVICE_TIME, "Charged device time of the call in seconds, summed over devices; on spans."),
    Attribute(CALL_HELD_TIME, "Time in seconds that the call itself held devices, before sharing; on spans."),
    Attribute(ERROR_TYPE, "Class of the exception that ended the call; on spans."),
    Attribute(HW_ID, "Device: NVML UUID of a GPU, `<host>/<service.instance.id>` for the host stand-in."),
    Attribute(HW_NAME, "Product name of the device."),
    Attribute(HW_TYPE, "`gpu`, or `cpu` for the host stand-in."),
)

_FEATURE_FAMILY = (FEATURE, OPERATION, MODEL, VARIANT, STAGE, TENANT, TIME_SOURCE, HW_TYPE, HW_NAME)
_CALL_FAMILY = (FEATURE, OPERATION, MODEL, VARIANT, STAGE, TENANT, STATUS, TIME_SOURCE, HW_TYPE, HW_NAME)
_DEVICE_FAMILY = (HW_ID, HW_TYPE, HW_NAME, PUBLISHER)

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
    _FEATURE_FAMILY,
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
    (*_DEVICE_FAMILY, DEVICE_STATE),
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
SDK_LOST = Metric(
    "gputrace.sdk.lost",
    Kind.COUNTER,
    "{record}",
    "Records that the SDK accepted and could not deliver, by reason.",
    (LOSS_REASON,),
    "gputrace_sdk_lost_total",
)
SDK_QUEUE_LENGTH = Metric(
    "gputrace.sdk.queue.length",
    Kind.GAUGE,
    "{call}",
    "Calls that are open or not settled yet.",
    (),
    "gputrace_sdk_queue_length",
)
SDK_UNMEASURED = Metric(
    "gputrace.sdk.unmeasured",
    Kind.COUNTER,
    "{call}",
    "Calls that touched a device and could not be timed, by reason.",
    (LOSS_REASON,),
    "gputrace_sdk_unmeasured_total",
)
SDK_UNPRICED_TIME = Metric(
    "gputrace.sdk.unpriced.time",
    Kind.COUNTER,
    "s",
    "Device time for which no price was in force: counted, and without a cost.",
    _DEVICE_FAMILY,
    "gputrace_sdk_unpriced_time_seconds_total",
)
SDK_FOLDED = Metric(
    "gputrace.sdk.folded",
    Kind.COUNTER,
    "{value}",
    "Attribute values that were folded into `__other__`.",
    (),
    "gputrace_sdk_folded_total",
)
SDK_FAULTS = Metric(
    "gputrace.sdk.faults",
    Kind.COUNTER,
    "{fault}",
    "Faults of gputrace itself that were kept out of the user's program.",
    (),
    "gputrace_sdk_faults_total",
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
    CALLS,
    CALL_DURATION,
    CALL_DEVICE_TIME_HISTOGRAM,
    SDK_LOST,
    SDK_QUEUE_LENGTH,
    SDK_UNMEASURED,
    SDK_UNPRICED_TIME,
    SDK_FOLDED,
    SDK_FAULTS,
)
