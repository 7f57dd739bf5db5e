"""The metrics of gputrace itself: what it lost and could not measure; see ``gputrace.catalogue``."""

from __future__ import annotations

from gputrace.catalogue_attributes import HW_ID, HW_NAME, HW_PARENT, HW_TYPE, LOSS_REASON, PUBLISHER
from gputrace.catalogue_kinds import Kind, Metric

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
    (HW_ID, HW_TYPE, HW_NAME, HW_PARENT, PUBLISHER),
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
SDK_UNTRUSTED = Metric(
    "gputrace.sdk.untrusted",
    Kind.COUNTER,
    "{header}",
    "Baggage headers of requests that held entries of gputrace and were not believed, by reason.",
    (LOSS_REASON,),
    "gputrace_sdk_untrusted_total",
)
SDK_FAULTS = Metric(
    "gputrace.sdk.faults",
    Kind.COUNTER,
    "{fault}",
    "Faults of gputrace itself that were kept out of the user's program.",
    (),
    "gputrace_sdk_faults_total",
)
