"""Decision logs for the tests of the pay-off: whole, hiding nothing, and as production writes them."""

from __future__ import annotations

import numpy as np

LEVELS = ("light_cost", "heavy_cost", "light_quality", "heavy_quality")


def whole(size=400, threshold=0.5, seed=0, rate=1.0):
    """Requests with both outcomes; heavy costs rise with the light ones, the light model is right if sure."""
    random = np.random.default_rng(seed)
    confidence = np.round(random.random(size), 2)
    light_cost = 0.1 + random.gamma(2.0, 0.1, size)
    return {
        "confidence": confidence,
        "escalated": confidence < threshold,
        "audit_propensity": np.where(confidence < threshold, 1.0, rate),
        "light_cost": light_cost,
        "heavy_cost": 0.5 + 4 * light_cost + random.gamma(1.0, 0.5, size) + (confidence < threshold),
        "light_quality": (random.random(size) < 0.4 + 0.5 * confidence).astype(float),
        "heavy_quality": (random.random(size) < 0.9).astype(float),
        "threshold": np.full(size, threshold),
    }


def audited(table, seed=0, graded=1.0):
    """The same as production sees it: audits drawn, everything else of the heavy model hidden."""
    # Not the stream that made the table: audits would follow the confidence.
    random = np.random.default_rng([seed, 1])
    log = {name: np.asarray(values).copy() for name, values in table.items()}
    size = len(log["escalated"])
    kept = ~log["escalated"]
    log["audited"] = kept & (random.random(size) < log["audit_propensity"])
    hidden = kept & ~log["audited"]
    grades = random.random(size) < graded
    log["label_propensity"] = np.full(size, graded)
    log["heavy_cost"][hidden] = np.nan
    log["heavy_quality"][hidden | ~grades] = np.nan
    log["light_quality"][~grades] = np.nan
    return log


def by_definition(table, overhead=0.0):
    """Every quantity from the whole table, by its definition."""
    escalated = table["escalated"].astype(float)
    light, heavy = table["light_cost"], table["heavy_cost"]
    served = np.where(table["escalated"], table["heavy_quality"], table["light_quality"])
    cascade = (light + overhead + escalated * heavy).mean()
    always = heavy.mean()
    found = {
        "escalation_rate": escalated.mean(),
        "light_cost": light.mean(),
        "cascade_cost": cascade,
        "wasted_light_cost": (escalated * light).mean(),
        "always_heavy_cost": always,
        "savings_abs": always - cascade,
        "savings_frac": 1 - cascade / always,
        "quality_light": table["light_quality"].mean(),
        "quality_cascade": served.mean(),
        "quality_heavy": table["heavy_quality"].mean(),
        "quality_delta": (served - table["heavy_quality"]).mean(),
        "break_even_simple": 1 - (light.mean() + overhead) / always,
        "cost_weighted_escalation": (escalated * heavy).mean() / always,
    }
    if table["heavy_quality"].any():
        found["quality_retention"] = served.mean() / table["heavy_quality"].mean()
    if escalated.any():
        dearness = heavy[table["escalated"]].mean()
        found["heavy_cost_escalated"] = dearness
        found["break_even_mix"] = (always - light.mean() - overhead) / dearness
    return found
