"""Whether the intervals of `gputrace.analysis.payoff` hold what they promise, on tables that know the truth.

    python benchmarks/payoff_coverage.py FOLDER [--seeds 300] [--json FILE]

FOLDER holds cascade tables (CSV) with both models' outcome on every question. A threshold is run over
requests drawn from a table, the heavy outcome of requests that were kept and not audited is hidden, and what
the estimators say of the rest is compared with the whole table. docs/payoff.md shows the result.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gputrace.analysis import payoff

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputrace.analysis.payoff_log import Floats

NUMBERS = ("confidence", "light_cost", "heavy_cost", "light_quality", "heavy_quality", "input_size")
METRICS = (
    "escalation_rate",
    "light_cost",
    "cascade_cost",
    "wasted_light_cost",
    "heavy_cost_escalated",
    "always_heavy_cost",
    "savings_abs",
    "savings_frac",
    "savings_net_abs",
    "audit_tax",
    "quality_light",
    "quality_cascade",
    "quality_heavy",
    "quality_delta",
    "quality_retention",
    "break_even_simple",
    "break_even_mix",
    "cost_weighted_escalation",
)
SIZE = 2000
AUDITED = 0.1
GRADED = 0.6
RATES = (0.15, 0.3, 0.5)


@dataclass(frozen=True)
class Table:
    """One pair of models, both outcomes known."""

    name: str
    columns: dict[str, Floats]


def tables(folder: Path) -> Iterator[Table]:
    """Yield the cascade tables of a folder, a table for each pair of models."""
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        if not rows or "heavy_quality" not in rows[0]:
            continue
        pairs: dict[str, list[dict[str, str]]] = defaultdict(list)
        for row in rows:
            pairs[row["pair"]].append(row)
        for pair, found in pairs.items():
            columns = {name: np.array([float(row[name] or "nan") for row in found]) for name in NUMBERS}
            if np.isnan(columns["input_size"]).any():
                del columns["input_size"]
            yield Table(f"{path.stem}: {pair}" if len(pairs) > 1 else path.stem, columns)


def propensities(confidence: Floats, threshold: float, design: str) -> Floats:
    """Return audit propensities: the same for all, or three times as many just above the threshold."""
    if design == "uniform":
        return np.full(len(confidence), AUDITED)
    above = confidence[confidence >= threshold]
    near = confidence <= np.quantile(above, 0.5)
    return np.where(near, 1.5 * AUDITED, 0.5 * AUDITED)


def whole(table: Table, threshold: float, design: str) -> dict[str, Floats]:
    """Return the table as a log that hides nothing: every kept request audited, in the propensity's stead."""
    columns = dict(table.columns)
    columns["escalated"] = columns["confidence"] < threshold
    columns["audit_propensity"] = propensities(columns["confidence"], threshold, design)
    return columns


def truth(columns: dict[str, Floats]) -> dict[str, float]:
    """Return what the whole table says, by the definitions."""
    escalated = columns["escalated"].astype(float)
    light, heavy = columns["light_cost"].mean(), columns["heavy_cost"].mean()
    spent = (escalated * columns["heavy_cost"]).mean()
    tax = ((1 - escalated) * columns["audit_propensity"] * columns["heavy_cost"]).mean()
    served = np.where(escalated > 0, columns["heavy_quality"], columns["light_quality"]).mean()
    best = columns["heavy_quality"].mean()
    dearness = spent / escalated.mean()
    return {
        "escalation_rate": escalated.mean(),
        "light_cost": light,
        "cascade_cost": light + spent,
        "wasted_light_cost": (escalated * columns["light_cost"]).mean(),
        "heavy_cost_escalated": dearness,
        "always_heavy_cost": heavy,
        "savings_abs": heavy - light - spent,
        "savings_frac": 1 - (light + spent) / heavy,
        "savings_net_abs": heavy - light - spent - tax,
        "audit_tax": tax,
        "quality_light": columns["light_quality"].mean(),
        "quality_cascade": served,
        "quality_heavy": best,
        "quality_delta": served - best,
        "quality_retention": served / best,
        "break_even_simple": 1 - light / heavy,
        "break_even_mix": (heavy - light) / dearness,
        "cost_weighted_escalation": spent / heavy,
    }


def censored(columns: dict[str, Floats], design: str, seed: int) -> dict[str, Floats]:
    """Return a log as production writes it: requests drawn from the table, what was not run hidden."""
    random = np.random.default_rng(seed)
    chosen = random.integers(len(columns["escalated"]), size=SIZE)
    log = {name: values[chosen] for name, values in columns.items()}
    kept = ~log["escalated"]
    log["audited"] = kept & (random.random(SIZE) < log["audit_propensity"])
    log["audit_propensity"] = np.where(kept, log["audit_propensity"], 1.0)
    hidden = kept & ~log["audited"]
    graded = np.ones(SIZE, dtype=bool) if design == "uniform" else random.random(SIZE) < GRADED
    log["label_propensity"] = np.full(SIZE, 1.0 if design == "uniform" else GRADED)
    log["heavy_cost"] = np.where(hidden, np.nan, log["heavy_cost"])
    log["heavy_quality"] = np.where(hidden | ~graded, np.nan, log["heavy_quality"])
    log["light_quality"] = np.where(graded, log["light_quality"], np.nan)
    return log


def naive(log: dict[str, Floats]) -> dict[str, float]:
    """Return what the obvious formulas say: kept requests would have cost what escalated ones did, and so on."""
    escalated = log["escalated"]
    heavy = np.nanmean(log["heavy_cost"][escalated])
    spent = log["light_cost"].mean() + escalated.mean() * heavy
    served = np.where(escalated, log["heavy_quality"], log["light_quality"])
    seen = log["audited"]
    audited = np.nanmean(log["light_quality"][seen] - log["heavy_quality"][seen])
    return {
        "savings_frac": 1 - spent / heavy,
        "quality_delta": np.nanmean(served) - np.nanmean(log["heavy_quality"][escalated]),
        "quality_delta, audits unweighted": (1 - escalated.mean()) * audited,
    }


@dataclass
class Tally:
    """One metric over the seeds of one cell."""

    covered: int = 0
    bounded: int = 0
    seeds: int = 0
    errors: float = 0.0
    widths: float = 0.0
    below: int = 0

    def add(self, found: payoff.Estimate, true: float) -> None:
        """Count one estimate."""
        self.seeds += 1
        if found.value is None or found.low is None or found.high is None:
            return
        self.bounded += 1
        self.errors += found.value - true
        self.widths += found.high - found.low
        slack = 1e-9 * abs(true)
        self.covered += found.low - slack <= true <= found.high + slack
        self.below += true < found.low - slack


def study(table: Table, rate: float, design: str, seeds: int) -> tuple[dict[str, Tally], dict[str, float]]:
    """Return the tallies by metric, and the naive formulas' bias, at one escalation rate."""
    threshold = float(np.quantile(table.columns["confidence"], rate))
    columns = whole(table, threshold, design)
    true = truth(columns)
    tallies: dict[str, Tally] = defaultdict(Tally)
    wrong: dict[str, float] = defaultdict(float)
    for seed in range(seeds):
        log = censored(columns, design, seed)
        found = payoff.estimate(log)
        for name in METRICS:
            tallies[name].add(found[name], true[name])
        for name, value in naive(log).items():
            wrong[name] += (value - true[name.partition(",")[0]]) / seeds
    return tallies, wrong


def main() -> int:
    """Run the study and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    for design in ("uniform", "near"):
        for table in tables(arguments.folder):
            pooled: dict[str, list[Tally]] = defaultdict(list)
            for rate in arguments.rates:
                tallies, wrong = study(table, rate, design, arguments.seeds)
                for name, tally in tallies.items():
                    pooled[name].append(tally)
                print(table.name, rate, {k: round(v, 4) for k, v in wrong.items()})
            print("==", table.name, design)
            for name, found in pooled.items():
                n = sum(t.bounded for t in found)
                print(
                    f"{name:28s} cov {sum(t.covered for t in found) / max(1, n):.3f} below {sum(t.below for t in found) / max(1, n):.3f} bias "
                    + " ".join(f"{t.errors / max(1, t.bounded):+.4g}" for t in found)
                    + " hw "
                    + " ".join(f"{t.widths / 2 / max(1, t.bounded):.4g}" for t in found)
                    + f"  bounded {n}"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
