"""What a query's answer is measured in: seconds, money, joules, by the units of the catalogue."""

from __future__ import annotations

from collections import Counter
from typing import Any

import promql_parser as promql

from gputrace import catalogue
from gputrace.grafana.recorded import RECORDED

#: Power by base unit; counts of things have none.
Dimension = dict[str, int]
_OF_METRICS = {metric.prometheus: metric.unit for metric in catalogue.METRICS} | {
    recorded.name: recorded.unit for recorded in RECORDED
}
_UNIT = {
    "s": {"s": 1},
    "J": {"J": 1},
    "W": {"J": 1, "s": -1},
    "By": {"By": 1},
    "Cel": {"Cel": 1},
    "h": {"h": 1},
}
# Numbers that change a unit: the window of a rule in seconds, hours in seconds, days in hours.
_FACTORS = {300.0: {"s": 1}, 3600.0: {"s": 1, "h": -1}, 24.0: {"h": 1, "d": -1}}
#: Others that a board may multiply with.
PLAIN_FACTORS = {0.0, 1.0, 2.0, 100.0, 1000.0}
_HOURLY = ":increase1h"
#: How Grafana may write what is measured in it.
GRAFANA = {
    frozenset(): {"percentunit", "short", "locale", "none"},
    frozenset({("s", 1)}): {"s"},
    frozenset({("h", 1)}): {"suffix: h"},
    frozenset({("s", -1)}): {"suffix:/s", "cps"},
    frozenset({("h", -1)}): {"suffix:/h"},
    frozenset({("J", 1)}): {"joule"},
    frozenset({("J", 1), ("s", -1)}): {"watt"},
    frozenset({("By", 1)}): {"bytes"},
    frozenset({("Cel", 1)}): {"celsius"},
    frozenset({("currency", 1)}): {"locale"},
    frozenset({("currency", -1)}): {"short"},
    frozenset({("currency", 1), ("h", -1)}): {"locale"},
    frozenset({("currency", 1), ("d", -1)}): {"locale"},
}


class WrongUnitError(AssertionError):
    """Things of different units are added, or a factor says nothing."""


def measured_in(node: Any) -> Dimension | None:  # noqa: PLR0911 - one a kind of node
    """The dimension of an expression; None for numbers and what fits everything."""
    if isinstance(node, promql.ParenExpr | promql.UnaryExpr | promql.SubqueryExpr):
        return measured_in(node.expr)
    if isinstance(node, promql.NumberLiteral):
        return _FACTORS.get(node.val)
    if isinstance(node, promql.VectorSelector):
        return _of_metric(node.name)
    if isinstance(node, promql.MatrixSelector):
        return _of_metric(node.vector_selector.name)
    if isinstance(node, promql.AggregateExpr):
        return {} if str(node.op) == "count" else measured_in(node.expr)
    if isinstance(node, promql.Call):
        return _of_call(node)
    assert isinstance(node, promql.BinaryExpr), node
    return _of_operation(node)


def _of_metric(name: str | None) -> Dimension:
    name = name or ""
    for suffix in ("_bucket", "_count"):
        if name.removesuffix(suffix) in _OF_METRICS and name.endswith(suffix):
            return {}
    unit = _OF_METRICS.get(name) or _OF_METRICS.get(name.removesuffix("_sum"))
    if unit is None:
        return {}
    whole, _, per = unit.partition("/")
    dimension = {"currency": 1} if whole == "{currency}" else dict(_UNIT.get(whole, {}))
    return _times(dimension, {per: -1}) if per else dimension


def _of_call(node: Any) -> Dimension | None:
    name, arguments = node.func.name, list(node.args)
    if name in {"vector", "time", "hour", "minute"}:
        return None
    if name in {"changes", "count_over_time"}:
        return {}
    if name == "histogram_quantile":
        bucket = next(one.name for one in nodes(arguments[1]) if isinstance(one, promql.VectorSelector))
        return _of_metric(bucket.removesuffix("_bucket"))
    dimension = measured_in(arguments[0])
    if name == "rate":
        return _times(dimension or {}, {"s": -1})
    averaged = name == "avg_over_time" and any(
        isinstance(one, promql.VectorSelector) and one.name.endswith(_HOURLY) for one in nodes(arguments[0])
    )
    return _times(dimension or {}, {"h": -1}) if averaged else dimension


def _of_operation(node: Any) -> Dimension | None:
    left, right = measured_in(node.lhs), measured_in(node.rhs)
    operation = str(node.op)
    if operation in {"*", "/"}:
        for side in (node.lhs, node.rhs):
            if isinstance(side, promql.NumberLiteral) and side.val not in PLAIN_FACTORS | set(_FACTORS):
                raise WrongUnitError(f"{side.val:g} says nothing in {node}")
        if left is None and right is None:
            return None
        inverse = {unit: -power for unit, power in (right or {}).items()}
        return _times(left or {}, (right or {}) if operation == "*" else inverse)
    if operation in {"+", "-"} and left is not None and right is not None and left != right:
        raise WrongUnitError(f"{left} and {right} are added in {node}")
    if node.modifier is not None and node.modifier.return_bool:
        return {}
    return right if left is None and operation in {"+", "-"} else left


def _times(one: Dimension, other: Dimension) -> Dimension:
    summed = Counter(one)
    summed.update(other)
    return {unit: power for unit, power in summed.items() if power}


def nodes(node: Any, *above: Any) -> list[Any]:
    """Every node of an expression."""
    return [found for found, _ in with_parents(node, above)]


def with_parents(node: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, tuple[Any, ...]]]:
    """Every node, with those above it, the nearest last."""
    found = [(node, above)]
    within = (*above, node)
    if isinstance(node, promql.MatrixSelector):
        children = [node.vector_selector]
    elif isinstance(node, promql.Call):
        children = list(node.args)
    elif isinstance(node, promql.BinaryExpr):
        children = [node.lhs, node.rhs]
    elif isinstance(node, promql.AggregateExpr):
        children = [node.expr, *([node.param] if node.param is not None else [])]
    elif isinstance(node, promql.ParenExpr | promql.UnaryExpr | promql.SubqueryExpr):
        children = [node.expr]
    else:
        children = []
    for child in children:
        found += with_parents(child, within)
    return found
