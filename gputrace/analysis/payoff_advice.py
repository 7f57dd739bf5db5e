"""The cheapest threshold whose loss of quality stays within a target: Learn then Test, in a fixed sequence.

The threshold whose estimate looks best is the one whose noise looked best. So thresholds are tested one
after the other from "escalate everything", which loses nothing, downwards, each at the full level, until the
first that fails: the probability to end at one that breaks the target is then at most what one test errs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputrace.analysis import formats
from gputrace.analysis.payoff_figures import LEAST_AUDITS, Advice
from gputrace.analysis.payoff_intervals import normal_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputrace.analysis.payoff_log import Floats
    from gputrace.analysis.payoff_thresholds import Kept, Thresholds


def choose(asked: Thresholds, candidates: Floats, target_loss: float, level: float) -> Advice:
    """Return which of the candidates to use.

    Args:
        asked: The log.
        candidates: Thresholds.
        target_loss: Quality that may be lost against always-heavy.
        level: Probability with which the guaranteed threshold must keep to it.
    """
    if asked.unidentified is not None:
        return Advice(None, None, f"{asked.unidentified}.")
    downwards = [(float(one), asked.kept_by(one)) for one in sorted(candidates, reverse=True)]
    told = [(one, kept) for one, kept in downwards if kept.share and kept.reason is None]
    within = [one for one, kept in told if -kept.delta <= target_loss]
    point = min(within) if within else None
    unsure = _unsupported(downwards)
    if asked.pairs < LEAST_AUDITS:
        missing = LEAST_AUDITS - asked.pairs
        return Advice(None, point, f"Nothing can be guaranteed before {missing} more graded audits.{unsure}")
    quantile = normal_quantile(1 - level)
    guaranteed: float | None = None
    stopped = ""
    for one, kept in told:
        worst = -asked.bounds(kept, quantile).low
        if worst > target_loss:
            which = "Already" if guaranteed is None else "The next,"
            stopped = f" {which} {one:.4g} may lose up to {100 * worst:.1f} points."
            break
        guaranteed = one
    return Advice(guaranteed, point, _words(asked, guaranteed, target_loss, level) + stopped + unsure)


def _words(asked: Thresholds, guaranteed: float | None, target_loss: float, level: float) -> str:
    target = f"{100 * target_loss:.3g} points"
    if guaranteed is None:
        return f"No threshold that keeps requests is sure to lose at most {target} (confidence {level:.0%})."
    kept = asked.kept_by(guaranteed)
    said = (
        f"Escalating below {guaranteed:.4g} keeps {kept.share:.0%} of requests and loses at most {target} "
        f"(confidence {level:.0%})."
    )
    saved = asked.savings_at(guaranteed)
    if saved is not None and saved < 0:
        said += f" It costs {formats.share(-saved)} more than always-heavy all the same."
    return said


def _unsupported(downwards: Sequence[tuple[float, Kept]]) -> str:
    """Return a sentence on the thresholds that the log says nothing about."""
    silent = [(one, kept) for one, kept in downwards if kept.reason is not None]
    if not silent:
        return ""
    low, high = min(one for one, _ in silent), max(one for one, _ in silent)
    where = f"{low:.4g}" if low == high else f"{len(silent)} thresholds from {low:.4g} to {high:.4g}"
    return f" The log cannot tell about {where}: {silent[-1][1].reason}."
