"""How decisions and scores are read from a line of log events: a part of `store`, whose macros it uses."""

from __future__ import annotations

from gputrace import catalogue

FIELDS = {
    "request_id": catalogue.REQUEST_ID,
    "enclosing_id": catalogue.ESCALATION_ENCLOSING_ID,
    "feature": catalogue.FEATURE,
    "cascade": catalogue.ESCALATION_CASCADE,
    "decision": catalogue.ESCALATION_DECISION,
    "confidence": catalogue.ESCALATION_CONFIDENCE,
    "threshold": catalogue.ESCALATION_THRESHOLD_VALUE,
    "surer": catalogue.ESCALATION_SURER,
    "audit_propensity": catalogue.ESCALATION_AUDIT_PROPENSITY,
    "excluded": catalogue.ESCALATION_EXCLUDED,
    "input_size": catalogue.ESCALATION_INPUT_SIZE,
    "light_stage": catalogue.ESCALATION_LIGHT_STAGE,
    "light_time": catalogue.ESCALATION_LIGHT_TIME,
    "light_cost": catalogue.ESCALATION_LIGHT_COST,
    "heavy_time": catalogue.ESCALATION_HEAVY_TIME,
    "heavy_cost": catalogue.ESCALATION_HEAVY_COST,
    "currency": catalogue.CURRENCY,
    "score": catalogue.SCORE_NAME,
    "value": catalogue.SCORE_VALUE,
    "stage": catalogue.STAGE,
    "label_propensity": catalogue.SCORE_LABEL_PROPENSITY,
}
"""Columns of the table by the attribute that they hold, all as text."""

_LOOKUPS = ",\n    ".join(f"lookup(keys, vals, ${name}) AS {name}" for name in FIELDS)

EVENTS = f"""
CREATE TEMP TABLE raw_event AS
WITH line AS (SELECT filename, valid_or_null(json) AS json FROM {{source}}),
resource AS (
    SELECT filename, unnest(or_bad(json, json_extract(json, '$.resourceLogs[*]'))) AS resource FROM line),
record AS (
    SELECT filename, is_simulated(json_extract(resource, '$.resource')) AS simulated,
        unnest(CASE WHEN resource IS NULL THEN [NULL]
            ELSE json_extract(resource, '$.scopeLogs[*].logRecords[*]') END) AS record
    FROM resource),
named AS (
    SELECT filename, simulated, record, json_extract_string(record, '$.eventName') AS event,
        TRY_CAST(json_extract_string(record, '$.timeUnixNano') AS BIGINT) AS at_ns
    FROM record),
field AS (
    SELECT filename, simulated, record, event, at_ns, attribute_keys(record) AS keys,
        attribute_values(record) AS vals
    FROM named WHERE record IS NULL OR event IN ($decided, $scored))
SELECT filename, record IS NULL AS bad, simulated, event = $decided AS is_decision, at_ns,
    {_LOOKUPS}
FROM field
"""  # noqa: S608 - built of constants

PARAMETERS = {"decided": catalogue.DECISION_EVENT, "scored": catalogue.SCORE_EVENT, **FIELDS}
