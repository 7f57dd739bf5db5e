"""The names of attributes and their reserved values; see ``gputrace.catalogue``, which shows them all."""

from __future__ import annotations

from dataclasses import dataclass

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
HTTP_ROUTE = "http.route"
BATCH_SIZE = "gputrace.batch.size"
BATCH_PADDING = "gputrace.batch.padding"
REQUEST_CALLS_ATTRIBUTE = "gputrace.request.call.count"
REQUEST_COST_ATTRIBUTE = "gputrace.request.charge"
OUTCOME_NAME = "gputrace.outcome.name"
OUTCOME_VALUE = "gputrace.outcome.value"
UNIT_NAME = "gputrace.unit.name"
REQUEST_ID = "gputrace.request.id"
ESCALATION_AUDIT_DRAWN = "gputrace.escalation.audit.drawn"
ESCALATION_AUDIT_PROPENSITY = "gputrace.escalation.audit.propensity"
ESCALATION_AUDIT_REASON = "gputrace.escalation.audit.reason"
ESCALATION_BOUND = "gputrace.escalation.bound"
ESCALATION_CASCADE = "gputrace.escalation.cascade"
ESCALATION_CONFIDENCE = "gputrace.escalation.confidence"
ESCALATION_DECISION = "gputrace.escalation.decision"
ESCALATION_ENCLOSING_ID = "gputrace.escalation.enclosing.id"
ESCALATION_EXCLUDED = "gputrace.escalation.excluded"
ESCALATION_HEAVY_COST = "gputrace.escalation.heavy.cost"
ESCALATION_HEAVY_ENERGY = "gputrace.escalation.heavy.energy"
ESCALATION_HEAVY_TIME = "gputrace.escalation.heavy.time"
ESCALATION_INPUT_SIZE = "gputrace.escalation.input.size"
ESCALATION_LIGHT_COST = "gputrace.escalation.light.cost"
ESCALATION_LIGHT_ENERGY = "gputrace.escalation.light.energy"
ESCALATION_LIGHT_STAGE = "gputrace.escalation.light.stage"
ESCALATION_LIGHT_TIME = "gputrace.escalation.light.time"
ESCALATION_POLICY = "gputrace.escalation.policy"
ESCALATION_QUANTITY = "gputrace.escalation.quantity"
ESCALATION_REASON = "gputrace.escalation.reason"
ESCALATION_SURER = "gputrace.escalation.surer"
ESCALATION_THRESHOLD_VALUE = "gputrace.escalation.threshold"
SCORE_NAME = "gputrace.score.name"
SCORE_VALUE = "gputrace.score.value"
SCORE_LABEL_PROPENSITY = "gputrace.score.label.propensity"
HW_ID = "hw.id"
HW_NAME = "hw.name"
HW_TYPE = "hw.type"
HW_PARENT = "hw.parent"
#: Of the resource; the only attribute of gputrace that is.
SIMULATED = "gputrace.simulated"
#: And the environment that is then.
SIMULATION = "simulation"
ENERGY_SOURCE = "gputrace.energy.source"
ENERGY_SPLIT = "gputrace.energy.split"
PRICE_SKU = "gputrace.price.sku"
PRICE_KIND = "gputrace.price.kind"
PRICE_SOURCE = "gputrace.price.source"
PRICE_DATE = "gputrace.price.date"
BUILD_VERSION = "gputrace.build.version"
STEP_COEFFICIENT = "gputrace.step.coefficient"
STEP_PHASE = "gputrace.step.phase"
STEP_REGIME = "gputrace.step.regime"
STEP_WEIGHTS = "gputrace.step.weights"
STEP_KIND = "gputrace.step.kind"

# --- reserved values -------------------------------------------------------

NO_FEATURE = "__none__"
SHARED = "__shared__"
#: Steps of a model server that serve nobody: those that keep its ranks together.
OVERHEAD = "__overhead__"
OTHER = "__other__"
RESERVED_PREFIX = "__"

CALL_STATUSES = ("ok", "error", "cancelled")
DEVICE_STATES = ("charged", "untracked", "idle", "unknown")
ENERGY_SOURCES = ("counter", "power")
ENERGY_SPLITS = ("idle_power", "estimated")
STEP_COEFFICIENTS = ("fixed", "prefill", "decode", "context", "pairs")
STEP_PHASES = ("prefill", "decode", "other")
#: By prompt tokens of a step; and all steps together.
STEP_REGIMES = ("0", "1-127", "128-511", "512+", "all")
STEP_WEIGHINGS = ("fitted", "constants", "none")
STEP_KINDS = ("prefill", "decode", "cached", "recomputed")
TIME_SOURCES = ("cuda_event", "kernel", "host", "estimated", "unknown")


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
    Attribute(LOSS_REASON, "Why the SDK lost, could not measure or did not believe something."),
    Attribute(CALL_ID, "Identity of a call, on spans and log records."),
    Attribute(CALL_DEVICE_TIME, "Charged device time of the call in seconds, summed over devices; on spans."),
    Attribute(CALL_HELD_TIME, "Time in seconds that the call itself held devices, before sharing; on spans."),
    Attribute(BATCH_SIZE, "How many members a batch was given; on its span."),
    Attribute(BATCH_PADDING, "Share of a batch that is padding, 0 to 1; on its span."),
    Attribute(HTTP_ROUTE, "Route of a request, as its framework writes it: a template, never a path."),
    Attribute(REQUEST_CALLS_ATTRIBUTE, "Tracked calls made inside a request; on its span."),
    Attribute(REQUEST_COST_ATTRIBUTE, "What a request cost, in the currency beside it; on its span."),
    Attribute(ERROR_TYPE, "Class of the exception that ended the call; on spans."),
    Attribute(OUTCOME_NAME, "Product event, such as `ticket_solved`."),
    Attribute(OUTCOME_VALUE, "How often it happened; on the span of an outcome."),
    Attribute(UNIT_NAME, "Unit of work, such as `tokens`."),
    Attribute(REQUEST_ID, "Identity of the request, a call, that an outcome belongs to; on its span."),
    Attribute(
        ESCALATION_AUDIT_DRAWN,
        "Whether an audit of the kept answer was drawn, whatever became of it; in events.",
    ),
    Attribute(
        ESCALATION_AUDIT_PROPENSITY,
        "Probability, known before the draw, that an audit is drawn and runs; 1 where escalated. In events.",
    ),
    Attribute(
        ESCALATION_AUDIT_REASON,
        "Why an audit that was drawn did not run: `budget`, `load`, `queue`, `no_callback`, `failed` or "
        "`unfinished`; in events.",
    ),
    Attribute(ESCALATION_BOUND, "Which end of an estimate: `low`, `value` or `high`."),
    Attribute(ESCALATION_CASCADE, "Name of the cascade."),
    Attribute(ESCALATION_CONFIDENCE, "What the rule judged, as it was given; in events."),
    Attribute(
        ESCALATION_DECISION,
        "`kept`, `escalated` or `audited`: kept, and the heavy stage ran in the shadow. Exclusive.",
    ),
    Attribute(
        ESCALATION_ENCLOSING_ID,
        "Identity of the request that this one is a part of: scores told by it count too. In events.",
    ),
    Attribute(ESCALATION_EXCLUDED, "Why estimates must leave a decision out, and count it; in events."),
    Attribute(
        ESCALATION_HEAVY_COST,
        "What all stages after the first cost, in the shadow too, in the currency beside it; in events.",
    ),
    Attribute(ESCALATION_HEAVY_ENERGY, "What those stages drew, J; in events."),
    Attribute(ESCALATION_HEAVY_TIME, "Charged device time of those stages, s; in events."),
    Attribute(
        ESCALATION_INPUT_SIZE, "How large the input was, in whatever unit the program counts; in events."
    ),
    Attribute(ESCALATION_LIGHT_COST, "What the first stage cost, in the currency beside it; in events."),
    Attribute(ESCALATION_LIGHT_ENERGY, "What the first stage drew, J; in events."),
    Attribute(
        ESCALATION_LIGHT_STAGE,
        "Name of the first stage: scores of any other are of the heavy side. In events.",
    ),
    Attribute(ESCALATION_LIGHT_TIME, "Charged device time of the first stage, s; in events."),
    Attribute(ESCALATION_POLICY, "Which rule decided, as one name a version."),
    Attribute(
        ESCALATION_QUANTITY,
        "What is estimated, as `gputrace payoff` names it: `savings_frac`, `quality_delta`.",
    ),
    Attribute(
        ESCALATION_REASON,
        "Why it was decided so: `confidence`, `rule`, `invalid_confidence`, or what the program recorded; on "
        "metrics also why an audit did not run.",
    ),
    Attribute(ESCALATION_SURER, "Which confidence is the surer: `higher` or `lower`; in events."),
    Attribute(ESCALATION_THRESHOLD_VALUE, "Threshold in force at the decision; in events."),
    Attribute(SCORE_NAME, "What a score judges, such as `correct`."),
    Attribute(SCORE_VALUE, "The score; in events."),
    Attribute(SCORE_LABEL_PROPENSITY, "Probability that this answer would be scored at all; in events."),
    Attribute(
        ENERGY_SOURCE,
        "Where energy was read: the driver's `counter`, or `power` over time. The two are never added.",
    ),
    Attribute(
        ENERGY_SPLIT,
        "How energy was shared: above the `idle_power` seen, or `estimated` by time alone until it was.",
    ),
    Attribute(
        SIMULATED,
        "True on everything that `gputrace simulate` writes, absent elsewhere; of the resource.",
    ),
    Attribute(PRICE_SKU, "Product that a price is for, as its row in the price book says."),
    Attribute(PRICE_KIND, "`on_demand`, `reserved`, `spot` or `amortised`."),
    Attribute(PRICE_SOURCE, "Where the price book has a price from."),
    Attribute(PRICE_DATE, "When its source said so, `YYYY-MM-DD`."),
    Attribute(
        STEP_COEFFICIENT,
        "What a weight is of: a step (`fixed`, borne in equal parts), a prompt token (`prefill`), a token "
        "beyond (`decode`), a token of `context` that those read, a thousand `pairs` of a prompt token and "
        "what it attends to.",
    ),
    Attribute(
        STEP_PHASE,
        "Prompt tokens (`prefill`), tokens beyond (`decode`), or `other`: steps that serve nobody, or of "
        "which nothing is known.",
    ),
    Attribute(STEP_REGIME, "Prompt tokens that a step computes: `0`, `1-127`, `128-511`, `512+`, or `all`."),
    Attribute(
        STEP_WEIGHTS,
        "What a step was split with: `fitted` weights, documented `constants`, or `none`: in equal parts.",
    ),
    Attribute(
        STEP_KIND,
        "Tokens computed of a prompt (`prefill`), of those the ones `recomputed` after a preemption, "
        "computed beyond (`decode`), or taken from the prefix cache (`cached`).",
    ),
    Attribute(BUILD_VERSION, "Version of gputrace that the process runs."),
    Attribute(HW_ID, "Device: NVML UUID of a GPU, `<host>/<service.instance.id>` for the host stand-in."),
    Attribute(HW_NAME, "Product name of the device."),
    Attribute(HW_PARENT, "The GPU that a slice (MIG) is part of."),
    Attribute(HW_TYPE, "`gpu`, or `cpu` for the host stand-in."),
)
