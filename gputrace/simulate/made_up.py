"""What a simulation makes up where nobody gives it: names of processes, and prices."""

from __future__ import annotations

import uuid
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from gputrace.simulate.demand import half_way_ns
from gputrace.simulate.features import features
from gputrace.simulate.plan import NS_PER_S

if TYPE_CHECKING:
    from pathlib import Path

    from gputrace.simulate.plan import Plan

_NAMESPACE = uuid.UUID("0a6f5c1e-3c43-4d4f-8a3e-3f5d9a3a7c11")
_PER_HOUR = "2.40"
_RAISED = "2.64"
CURRENCY = "USD"
_HOURS_A_MONTH = 730


def instance_id(plan: Plan, process: int) -> str:
    """Return ``service.instance.id`` of a simulated process; the same each time."""
    return str(uuid.uuid5(_NAMESPACE, f"{plan.seed}/{process}"))


def write_prices(plan: Plan, path: Path) -> Path:
    """Write a price book for the GPUs of a plan.

    Args:
        plan: What is simulated.
        path: The file.
    """
    rows = [_row(plan, _PER_HOUR, None)]
    if "price" in plan.incidents:
        rows.append(_row(plan, _RAISED, half_way_ns(plan)))
    path.write_text("\n".join(rows))
    return path


def budgets(plan: Plan) -> dict[str, float]:
    """Return what each feature may spend in a month, in the currency of the made-up prices.

    An equal part of what the fleet costs: some features stay far below, and some go beyond.
    """
    named = [one.name for one in features(plan.features)]
    fleet = plan.gpus * float(_PER_HOUR) * _HOURS_A_MONTH
    return {name: round(fleet / len(named), 2) for name in named}


def _row(plan: Plan, per_hour: str, from_ns: int | None) -> str:
    lines = [
        "[[price]]",
        f'name = "{plan.gpu_name}"',
        f"per_hour = {per_hour}",
        f'currency = "{CURRENCY}"',
        'kind = "on_demand"',
        'source = "made up by gputrace simulate"',
        f'sku = "simulated-{per_hour}"',
        f"as_of = {_moment(plan.start_ns if from_ns is None else from_ns).date().isoformat()}",
    ]
    if from_ns is not None:
        lines.append(f"valid_from = {_moment(from_ns).isoformat()}")
    return "\n".join(lines) + "\n"


def _moment(at_ns: int) -> datetime:
    return datetime.fromtimestamp(at_ns / NS_PER_S, timezone.utc)
