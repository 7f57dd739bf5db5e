"""How a call, or an outcome, is read from a line of spans: a part of `store`, whose macros it uses."""

from __future__ import annotations

from gputrace import catalogue

# Most lines hold spans of one scope; only a mixed line is taken apart by scope.
CALLS = """
CREATE TEMP TABLE raw_call AS
WITH line AS (SELECT filename, valid_or_null(json) AS json FROM {source}),
scoped AS (
    SELECT filename, json,
        json_extract_string(json, '$.resourceSpans[*].scopeSpans[*].scope.name') AS names,
        len(json_extract_string(json, '$.resourceSpans[*].scopeSpans[*].spans[0].spanId')) AS scopes
    FROM line),
part AS (
    SELECT filename, unnest(CASE
        WHEN json IS NULL OR (scopes = 0 AND NOT is_known(json)) THEN [NULL]
        WHEN len(names) = scopes AND list_distinct(names) = [$scope]
        THEN json_extract(json, '$.resourceSpans[*].scopeSpans[*].spans[*]')
        WHEN NOT list_contains(names, $scope) THEN []
        ELSE flatten(list_transform(
            list_filter(
                json_extract(json, '$.resourceSpans[*].scopeSpans[*]'),
                lambda item: json_extract_string(item, '$.scope.name') = $scope),
            lambda item: json_extract(item, '$.spans[*]'))) END) AS part
    FROM scoped),
field AS (
    SELECT filename, part, attribute_keys(part) AS keys, attribute_values(part) AS vals,
        json_extract_string(part, ['$.startTimeUnixNano', '$.endTimeUnixNano', '$.name']) AS field
    FROM part)
SELECT filename, part IS NULL AS bad, TRY_CAST(field[2] AS BIGINT) AS end_ns,
    (TRY_CAST(field[2] AS BIGINT) - TRY_CAST(field[1] AS BIGINT)) / 1e9 AS wall_s,
    TRY_CAST(lookup(keys, vals, $device_time) AS DOUBLE) AS device_s,
    lookup(keys, vals, $feature) AS feature,
    coalesce(lookup(keys, vals, $operation), field[3]) AS operation,
    lookup(keys, vals, $model) AS model, lookup(keys, vals, $variant) AS variant,
    lookup(keys, vals, $stage) AS stage, lookup(keys, vals, $tenant) AS tenant,
    lookup(keys, vals, $status) AS status, lookup(keys, vals, $time_source) AS time_source,
    lookup(keys, vals, $hw_type) AS hw_type,
    CASE WHEN field[3] = $outcome_span THEN lookup(keys, vals, $outcome) END AS outcome,
    CASE WHEN field[3] = $outcome_span THEN TRY_CAST(lookup(keys, vals, $outcome_value) AS DOUBLE) END
        AS outcome_value,
    CASE WHEN field[3] = $outcome_span THEN lookup(keys, vals, $request_id) END AS request_id,
    CASE WHEN $identities THEN lookup(keys, vals, $call_id) END AS call_id,
    CASE WHEN $identities THEN json_extract_string(part, '$.spanId') END AS span_id
FROM field
"""

PARAMETERS = {
    "scope": catalogue.SCOPE_NAME,
    "device_time": catalogue.CALL_DEVICE_TIME,
    "feature": catalogue.FEATURE,
    "operation": catalogue.OPERATION,
    "model": catalogue.MODEL,
    "variant": catalogue.VARIANT,
    "stage": catalogue.STAGE,
    "tenant": catalogue.TENANT,
    "status": catalogue.STATUS,
    "time_source": catalogue.TIME_SOURCE,
    "hw_type": catalogue.HW_TYPE,
    "outcome_span": catalogue.OUTCOME_SPAN,
    "outcome": catalogue.OUTCOME_NAME,
    "outcome_value": catalogue.OUTCOME_VALUE,
    "request_id": catalogue.REQUEST_ID,
    "call_id": catalogue.CALL_ID,
}
