"""Whether the intervals of `gputrace.analysis.payoff` hold what they promise, on tables that know the truth.

    python benchmarks/payoff_coverage.py FOLDER [--seeds 300] [--advice-seeds 300]

FOLDER holds cascade tables (CSV) with both models' outcome on every question. A threshold is run over
requests drawn from a table, the heavy outcome of requests that were kept and not audited is hidden, and what
the estimators say of the rest is compared with the whole table. docs/payoff.md shows the result.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import defaultdict
from dataclasses import dataclass, field
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
DESIGNS = {
    "uniform": f"{SIZE} requests, {AUDITED:.0%} of the kept ones audited, everything graded",
    "near": f"{SIZE} requests, audits three times as likely just above the threshold, {GRADED:.0%} graded",
}
TARGET_LOSS = 0.02
POINTS = frozenset({"escalation_rate", "savings_frac", "break_even_simple", "break_even_mix"}) | frozenset(
    name for name in METRICS if name.startswith(("quality", "cost_weighted"))
)
"""Shares: their bias and width are in points. Those of costs are in per cent of the truth."""


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
            yield Table(pair.partition("->")[0] if len(pairs) > 1 else path.stem, columns)


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
    """Return what the obvious formulas say: kept requests are like escalated ones, audits all alike."""
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
    """One metric over the logs of one table and design.

    Attributes:
        covered: Logs whose interval held the truth.
        bounded: Logs that gave an interval.
        off: Estimate less truth, in points or per cent, one a log.
        half: Half the interval's width, likewise.
    """

    covered: int = 0
    bounded: int = 0
    off: list[float] = field(default_factory=list)
    half: list[float] = field(default_factory=list)

    def add(self, name: str, found: payoff.Estimate, true: float) -> None:
        """Count one estimate."""
        if found.value is None or found.low is None or found.high is None:
            return
        scale = 100 if name in POINTS else 100 / abs(true)
        slack = 1e-9 * abs(true)
        self.bounded += 1
        self.covered += found.low - slack <= true <= found.high + slack
        self.off.append(scale * (found.value - true))
        self.half.append(scale * (found.high - found.low) / 2)

    @property
    def coverage(self) -> float:
        """Share of intervals that held the truth."""
        return self.covered / max(1, self.bounded)

    @property
    def bias(self) -> float:
        """Mean error."""
        return float(np.mean(self.off))

    @property
    def noise(self) -> float:
        """Standard error of the bias, from the number of logs."""
        return float(np.std(self.off)) / math.sqrt(max(1, self.bounded))

    @property
    def width(self) -> float:
        """Half the mean width over what the estimate's true spread would ask for."""
        return float(np.mean(self.half)) / (1.96 * float(np.std(self.off)) or 1.0)


@dataclass
class Cell:
    """What was found for one table and design.

    Attributes:
        tallies: By metric.
        naive: Mean error of the obvious formulas, in points, by escalation rate.
        undrawn: Logs with too few audits for an interval.
    """

    tallies: dict[str, Tally]
    naive: dict[str, list[float]]
    undrawn: int = 0


def study(table: Table, design: str, seeds: int) -> Cell:
    """Simulate the logs of one table at all escalation rates."""
    cell = Cell({name: Tally() for name in METRICS}, defaultdict(list))
    for number, rate in enumerate(RATES):
        threshold = float(np.quantile(table.columns["confidence"], rate))
        columns = whole(table, threshold, design)
        true = truth(columns)
        wrong: dict[str, float] = defaultdict(float)
        for seed in range(seeds):
            log = censored(columns, design, seed + number * seeds)
            found = payoff.estimate(log)
            cell.undrawn += found["savings_frac"].low is None
            for name in METRICS:
                cell.tallies[name].add(name, found[name], true[name])
            for name, value in naive(log).items():
                wrong[name] += 100 * (value - true[name.partition(",")[0]]) / seeds
        for name, error in wrong.items():
            cell.naive[name].append(error)
    return cell


def broken(table: Table, seeds: int) -> tuple[float, float, float]:
    """Return how often guaranteed and point threshold break the target, and how often none is given."""
    confidence = table.columns["confidence"]
    threshold = float(np.quantile(confidence, RATES[1]))
    columns = whole(table, threshold, "uniform") | {"threshold": np.full(len(confidence), threshold)}
    gain = columns["light_quality"] - columns["heavy_quality"]
    counts = np.zeros(3)
    for seed in range(seeds):
        found = payoff.advise(censored(columns, "uniform", seed), target_loss=TARGET_LOSS)
        for place, chosen in enumerate((found.guaranteed, found.point)):
            kept = confidence >= (math.inf if chosen is None else chosen)
            counts[place] += -float((kept * gain).mean()) > TARGET_LOSS
        counts[2] += found.guaranteed is None
    guaranteed, point, none = counts / seeds
    return guaranteed, point, none


def main() -> int:
    """Run the study and print its tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder with the cascade tables")
    parser.add_argument("--seeds", type=int, default=300, help="logs a table, design and rate (default: 300)")
    parser.add_argument(
        "--advice-seeds", type=int, default=300, help="logs a table for advice (default: 300)"
    )
    arguments = parser.parse_args()
    found = list(tables(arguments.folder))
    if not found:
        print(f"{arguments.folder} holds no cascade table with both outcomes", file=sys.stderr)
        return 2
    for design, words in DESIGNS.items():
        cells = {table.name: study(table, design, arguments.seeds) for table in found}
        print(f"### {words}\n")
        print_coverage(cells)
        print_naive(cells)
    print_advice({table.name: broken(table, arguments.advice_seeds) for table in found})
    return 0


def print_coverage(cells: dict[str, Cell]) -> None:
    """Print a line a metric: coverage by table, bias, width."""
    print(f"| metric | {' | '.join(cells)} | pooled | bias | ± | width |")
    print("| --- |" + " ---: |" * (len(cells) + 4))
    for name in METRICS:
        tallies = [cell.tallies[name] for cell in cells.values()]
        pooled = sum(one.covered for one in tallies) / max(1, sum(one.bounded for one in tallies))
        worst = max(tallies, key=lambda one: abs(one.bias))
        covers = " | ".join(f"{one.coverage:.3f}" for one in tallies)
        width = max(one.width for one in tallies)
        unit = "pt" if name in POINTS else "%"
        print(
            f"| {name} | {covers} | **{pooled:.3f}** | {worst.bias:+.2f} {unit} | {worst.noise:.2f} | "
            f"{width:.2f} |"
        )
    undrawn = sum(cell.undrawn for cell in cells.values())
    print(f"\n{undrawn} logs had fewer than 30 audits, so no interval was given.\n")


def print_naive(cells: dict[str, Cell]) -> None:
    """Print what the obvious formulas err by."""
    rates = ", ".join(f"{rate:.0%}" for rate in RATES)
    print(f"| naive formula, error in points at {rates} escalated | {' | '.join(cells)} |")
    print("| --- |" + " ---: |" * len(cells))
    for name in next(iter(cells.values())).naive:
        errors = (", ".join(f"{error:+.1f}" for error in cell.naive[name]) for cell in cells.values())
        print(f"| {name} | {' | '.join(errors)} |")
    print()


def print_advice(found: dict[str, tuple[float, float, float]]) -> None:
    """Print how often advice broke its target."""
    print(f"### Advice for a loss of at most {100 * TARGET_LOSS:g} points\n")
    print("| table | guaranteed breaks it | point estimate's choice breaks it | nothing guaranteed |")
    print("| --- | ---: | ---: | ---: |")
    for name, (guaranteed, point, none) in found.items():
        print(f"| {name} | {guaranteed:.1%} | {point:.1%} | {none:.1%} |")


if __name__ == "__main__":
    sys.exit(main())
