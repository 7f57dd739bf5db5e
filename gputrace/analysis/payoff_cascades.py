"""The decisions of a data folder, by feature and cascade, and the scores that came later."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gputrace.analysis import origins
from gputrace.analysis.store import FilesChangedError, Store
from gputrace.analysis.survey import Advance, NoDataError, survey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

_ATTEMPTS = 3
_NS_PER_S = 1_000_000_000
_NO_COST = "no cost or time of a stage that ran"

# A request is decided once; the same event in two copies of a file counts once, and the last score wins.
_DECISIONS = """
CREATE TEMP TABLE decision AS
SELECT * FROM raw_event
WHERE NOT bad AND is_decision AND decision IN ('kept', 'escalated', 'audited')
QUALIFY row_number() OVER (PARTITION BY request_id, cascade ORDER BY at_ns) = 1
"""
_SCORES = """
CREATE TEMP TABLE graded AS
SELECT request_id, score, stage, TRY_CAST(value AS DOUBLE) AS value,
    TRY_CAST(label_propensity AS DOUBLE) AS propensity
FROM raw_event WHERE NOT bad AND NOT is_decision AND isfinite(TRY_CAST(value AS DOUBLE))
QUALIFY row_number() OVER (PARTITION BY request_id, score, coalesce(stage, '') ORDER BY at_ns DESC) = 1
"""
# Scores come by the identity of the request to the cascade, or by that of the request around it where this is
# nobody's else and stands for one decision of the cascade alone.
_KNOWN = """
CREATE TEMP TABLE known AS
SELECT request_id AS scored_id, request_id, cascade FROM decision
UNION ALL
SELECT enclosing_id, any_value(request_id), cascade FROM decision
WHERE enclosing_id IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM decision AS own WHERE own.request_id = decision.enclosing_id)
GROUP BY enclosing_id, cascade HAVING count(*) = 1
"""
_UNKNOWN = """
SELECT count(*) FROM graded
WHERE score = ? AND NOT EXISTS (SELECT 1 FROM known WHERE scored_id = graded.request_id)
"""
_JOINED = """
WITH judged AS (
    SELECT decision.request_id, decision.cascade, graded.value, graded.propensity,
        CASE WHEN graded.stage IS NULL THEN decision.decision != 'escalated'
            ELSE graded.stage = decision.light_stage END AS of_light
    FROM graded JOIN known ON known.scored_id = graded.request_id
        JOIN decision ON decision.request_id = known.request_id
            AND decision.cascade IS NOT DISTINCT FROM known.cascade
    WHERE graded.score = ?),
side AS (
    SELECT request_id, cascade,
        max(value) FILTER (of_light) AS light_quality, max(value) FILTER (NOT of_light) AS heavy_quality,
        max(propensity) FILTER (of_light) AS light_propensity,
        max(propensity) FILTER (NOT of_light) AS heavy_propensity
    FROM judged GROUP BY ALL)
SELECT decision.*, light_quality, heavy_quality, light_propensity, heavy_propensity
FROM decision LEFT JOIN side USING (request_id, cascade)
ORDER BY at_ns, request_id
"""
_NUMBERS = (
    "confidence",
    "threshold",
    "audit_propensity",
    "input_size",
    "light_time",
    "light_cost",
    "heavy_time",
    "heavy_cost",
    "light_quality",
    "heavy_quality",
    "light_propensity",
    "heavy_propensity",
)


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions of one cascade for one feature.

    Attributes:
        feature: The feature.
        cascade: The cascade; empty where the log names none.
        columns: What `payoff.estimate` takes.
        unit: Of the costs.
        excluded: Decisions that are left out, by reason.
        inverted: Confidence and threshold are negated, since lower is better.
        notes: What a reader must know of all, a sentence each.
        remarks: What a reader must know of this one.
    """

    feature: str
    cascade: str
    columns: Mapping[str, npt.NDArray[Any]]
    unit: str
    excluded: Mapping[str, int]
    inverted: bool = False
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def read_folder(path: Path, score: str | None = None, advance: Advance | None = None) -> list[Decisions]:
    """Read the decisions of a folder that gputrace wrote to, or of one file of it.

    Args:
        path: Folder or file.
        score: Name of the scores that are the quality; `None` for the one that most requests have.
        advance: Told how far the reading is.

    Raises:
        NoDataError: There is no decision of a cascade.
    """
    for _ in range(_ATTEMPTS):
        store = Store(survey(path, advance), advance)
        try:
            store.load_events()
            return _groups(store, path, score)
        except FilesChangedError:
            continue
        finally:
            store.close()
    message = f"{path}: files kept going away while they were read. Try again, or copy the folder first."
    raise NoDataError(message)


def _groups(store: Store, path: Path, score: str | None) -> list[Decisions]:
    store.execute(_DECISIONS)
    store.execute(_SCORES)
    store.execute(_KNOWN)
    chosen, notes = _score(store, path, score)
    ((count, simulated),) = store.rows("SELECT count(*), count(*) FILTER (simulated) FROM decision")
    notes = (*origins.notes(origins.Origins(count, simulated), "decisions"), *notes)
    rows = store.records(_JOINED, [chosen])
    if not rows:
        message = f"{path} holds no decision of a cascade. Has a gputrace.Cascade decided there yet?"
        raise NoDataError(message)
    ((unknown,),) = store.rows(_UNKNOWN, [chosen])
    if unknown:
        notes = (
            *notes,
            f"{unknown:,} scores {chosen!r} belong to no decision, by the identity that they name.",
        )
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["feature"] or "", row["cascade"] or ""), []).append(row)
    return [_decisions(*key, found, notes) for key, found in sorted(groups.items())]


def _score(store: Store, path: Path, score: str | None) -> tuple[str, tuple[str, ...]]:
    counts = store.rows("SELECT score, count(*) FROM graded GROUP BY ALL ORDER BY count(*) DESC, score")
    names = [name for name, _ in counts]
    if score is not None and score not in names:
        message = f"{path} holds no score called {score!r}; there are: {', '.join(names) or 'none'}."
        raise NoDataError(message)
    if score is None and len(names) > 1:
        others = ", ".join(names[1:])
        note = f"Quality is the score {names[0]!r}; there are also {others}: choose with --score."
        return names[0], (note,)
    return score or (names[0] if names else ""), ()


def _decisions(
    feature: str, cascade: str, rows: Sequence[Mapping[str, Any]], notes: tuple[str, ...]
) -> Decisions:
    excluded = Counter(row["excluded"] for row in rows if row["excluded"])
    used = [row for row in rows if not row["excluded"]]
    currencies = {row["currency"] for row in used}
    unit = currencies.pop() or "s" if len(currencies) == 1 else "s"
    spent = "time" if unit == "s" else "cost"
    known = [row for row in used if _has_costs(row, spent)]
    if unit != "s" and len(known) < len(used):
        unit, spent = "s", "time"
        known = [row for row in used if _has_costs(row, spent)]
        notes = (*notes, "Not every stage has a price: costs are charged device time in seconds.")
    if len(known) < len(used):
        excluded[_NO_COST] += len(used) - len(known)
    return _columns(feature, cascade, known, (unit, spent), Counter(excluded), notes)


def _has_costs(row: Mapping[str, Any], spent: str) -> bool:
    ran = ("light", "heavy") if row["decision"] != "kept" else ("light",)
    return all(row[f"{stage}_{spent}"] is not None for stage in ran)


def _columns(  # noqa: PLR0913 - the parts of one record
    feature: str,
    cascade: str,
    rows: Sequence[Mapping[str, Any]],
    costs: tuple[str, str],
    excluded: Mapping[str, int],
    notes: tuple[str, ...],
) -> Decisions:
    numbers = {name: _floats(row[name] for row in rows) for name in _NUMBERS}
    decision = np.array([row["decision"] for row in rows], dtype=object)
    unit, spent = costs
    inverted = any(row["surer"] == "lower" for row in rows)
    sign = -1.0 if inverted else 1.0
    light, heavy = numbers["light_propensity"], numbers["heavy_propensity"]
    graded = ~(np.isnan(numbers["light_quality"]) & np.isnan(numbers["heavy_quality"]))
    if (graded & np.isnan(light) & np.isnan(heavy)).any():
        notes = (*notes, "Scores without a label_propensity count as if every answer were sure to get one.")
    columns = {
        "confidence": sign * numbers["confidence"],
        "threshold": sign * numbers["threshold"],
        "escalated": decision == "escalated",
        "audited": decision == "audited",
        "audit_propensity": numbers["audit_propensity"],
        "light_cost": numbers[f"light_{spent}"],
        "heavy_cost": numbers[f"heavy_{spent}"],
        "light_quality": numbers["light_quality"],
        "heavy_quality": numbers["heavy_quality"],
        "light_label_propensity": _first_known(light, heavy),
        "heavy_label_propensity": _first_known(heavy, light),
        "input_size": numbers["input_size"],
        "time": _floats(row["at_ns"] for row in rows) / _NS_PER_S,
    }
    return Decisions(feature, cascade, columns, unit, excluded, inverted, notes)


def _first_known(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    found = np.where(np.isnan(one), other, one)
    return np.where(np.isnan(found), 1.0, found)


def _floats(values: Iterable[Any]) -> npt.NDArray[np.float64]:
    return np.array([_float(value) for value in values], dtype=np.float64)


def _float(value: Any) -> float:
    try:
        return float("nan" if value is None else value)
    except ValueError:
        return float("nan")
