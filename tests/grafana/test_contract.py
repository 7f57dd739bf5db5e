"""What every board keeps to, without Grafana: names, queries, units, panels, variables, links."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest

from gputrace import catalogue
from gputrace.grafana import output, rules
from gputrace.grafana.recorded import RECORDED
from tests.grafana.dimensions import GRAFANA, measured_in, nodes, with_parents

ROOT = Path(__file__).resolve().parents[2]
BOARDS = {path: json.loads(text) for path, text in output.generated().items() if path.endswith(".json")}
# Windows that nothing else has, so that they are known again after parsing.
RATE_INTERVAL, RANGE = dt.timedelta(seconds=241), dt.timedelta(seconds=604_801)
STEP, HOUR = dt.timedelta(minutes=5), dt.timedelta(hours=1)
SUBSTITUTED = {"$__rate_interval": "241s", "$__range": "604801s"}
#: From the resource, by Prometheus itself, or by its rules.
OTHER_LABELS = {"job", "instance", "deployment_environment_name"}
NOT_OURS = {"target_info": {"job", "service_version"}, "ALERTS": None}
PANEL_TYPES = {"bargauge", "heatmap", "piechart", "row", "stat", "state-timeline", "table", "timeseries"}
TRANSFORMATIONS = {"merge", "organize"}
MONEY_DECIMALS = 2


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [inner for panel in board["panels"] for inner in (panel, *panel.get("panels", []))]


def variables(board: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in board["templating"]["list"]}


def parsed(text: str) -> Any:
    for name, value in SUBSTITUTED.items():
        text = text.replace(name, value)
    assert "$__" not in text, text
    return promql.parse(re.sub(r"\$(\w+)", r"value-of-\1", text))


PANELS = [
    pytest.param(board, panel, id=f"{board['uid']}: {panel['title']}")
    for board in BOARDS.values()
    for panel in panels(board)
    if panel["type"] != "row"
]
TARGETS = [
    pytest.param(board, panel, target, id=f"{board['uid']}: {panel['title']} {target['refId']}")
    for board, panel in (one.values for one in PANELS)
    for target in panel["targets"]
]
ANNOTATIONS = [
    pytest.param(one["expr"], id=f"{board['uid']}: {one['name']}")
    for board in BOARDS.values()
    for one in board["annotations"]["list"]
]
RULES = [
    pytest.param(expr, id=name)
    for name, expr in (
        *((one.name, one.expr) for one in RECORDED),
        *((one.name, one.expr) for one in rules.ALERTS),
    )
]
every_panel = pytest.mark.parametrize(("board", "panel"), PANELS)
every_target = pytest.mark.parametrize(("board", "panel", "target"), TARGETS)
every_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
every_query = pytest.mark.parametrize(
    "expr",
    [pytest.param(one.values[2]["expr"], id=one.id) for one in TARGETS] + ANNOTATIONS + RULES,
)


# --- 1: names ----------------------------------------------------------------


def emitted() -> dict[str, catalogue.Metric]:
    """Metrics by every name that Prometheus shows of them."""
    found = {}
    for metric in catalogue.METRICS:
        if metric.kind is catalogue.Kind.HISTOGRAM:
            found |= {f"{metric.prometheus}_{part}": metric for part in ("bucket", "count", "sum")}
        else:
            found[metric.prometheus] = metric
    return found


EMITTED = emitted()


def labels_of(name: str) -> set[str]:
    """What a series of that name may carry: by the catalogue, or by what its rule keeps."""
    if name in EMITTED:
        metric = EMITTED[name]
        own = {attribute.replace(".", "_") for attribute in metric.attributes}
        return own | OTHER_LABELS | ({"le"} if name.endswith("_bucket") else set())
    (rule,) = [one for one in RECORDED if one.name == name]
    tree = promql.parse(rule.expr)
    if isinstance(tree, promql.AggregateExpr):
        return set(tree.modifier.labels)
    inner = [one.name for one in nodes(tree) if isinstance(one, promql.VectorSelector) and one.name]
    return labels_of(inner[0]) if inner else set()


def selectors(tree: Any) -> list[Any]:
    return [one for one in nodes(tree) if isinstance(one, promql.VectorSelector)]


def grouped_by(node: Any) -> set[str]:
    found = set()
    for one in nodes(node):
        if isinstance(one, promql.AggregateExpr) and one.modifier is not None:
            assert one.modifier.type == promql.AggModifierType.By, "`without` keeps what is not known"
            found |= set(one.modifier.labels)
    return found


@every_query
def test_every_metric_and_label_is_in_the_catalogue(expr):
    recorded = {one.name for one in RECORDED}
    for selector in selectors(parsed(expr)):
        if selector.name is None:
            assert '__name__=~"gputrace_.+"' in str(selector)
            continue
        if selector.name in NOT_OURS:
            continue
        assert selector.name in EMITTED or selector.name in recorded, "nothing emits or records it"
        for matcher in selector.matchers.matchers:
            assert matcher.name in labels_of(selector.name), matcher.name


@every_query
def test_every_grouping_is_by_labels_that_are_there(expr):
    for node in nodes(parsed(expr)):
        if not isinstance(node, promql.AggregateExpr) or node.modifier is None:
            continue
        names = [one.name for one in selectors(node.expr)]
        if not names or None in names or set(names) & {"ALERTS", "target_info"}:
            continue
        there = set().union(*map(labels_of, names))
        assert set(node.modifier.labels) <= there


@every_target
def test_legends_name_labels_that_the_answer_has(board, panel, target):
    named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    assert named <= grouped_by(parsed(target["expr"]))


def test_every_metric_is_used_somewhere():
    text = json.dumps(list(BOARDS.values())) + "".join(one.expr for one in RECORDED)
    unused = [
        metric.name
        for metric in catalogue.METRICS
        if not re.search(rf"\b{metric.prometheus}(_bucket|_count|_sum)?\b", text)
    ]
    assert unused == []


# --- 2 and 4: queries --------------------------------------------------------


@every_query
def test_counters_are_read_through_rate_or_increase(expr):
    for node, above in with_parents(parsed(expr)):
        if not isinstance(node, promql.VectorSelector) or node.name not in EMITTED:
            continue
        grows = EMITTED[node.name].kind in {catalogue.Kind.COUNTER, catalogue.Kind.HISTOGRAM}
        read = [one.func.name for one in above if isinstance(one, promql.Call)]
        through = {"rate", "increase"} & set(read)
        counted = isinstance(above[-1], promql.AggregateExpr) and str(above[-1].op) == "count"
        assert bool(through) == (grows and not counted), f"{node.name} through {read}"


@every_query
def test_quantiles_keep_the_bounds_of_their_buckets(expr):
    for node in nodes(parsed(expr)):
        if isinstance(node, promql.Call) and node.func.name == "histogram_quantile":
            assert "le" in node.args[1].modifier.labels


@every_target
def test_windows_are_those_of_grafana_or_of_a_rule(board, panel, target):
    for node in nodes(parsed(target["expr"])):
        if isinstance(node, promql.MatrixSelector):
            name = node.vector_selector.name
            # An hour for what is rare.
            assert node.range in {RATE_INTERVAL, RANGE, HOUR} or name.endswith(":increase1h"), name
            # What is recorded more often than once a window would be counted as often.
            if node.range == RANGE and ":" in name:
                assert name.endswith(":increase5m"), name
        if isinstance(node, promql.SubqueryExpr):
            assert (node.range, node.step) == (RANGE, STEP)
            assert all(name.endswith(":rate5m") for name in (one.name for one in selectors(node)))


@every_target
def test_the_whole_range_and_topk_are_asked_for_once(board, panel, target):
    if "$__range" in target["expr"] or "topk" in target["expr"]:
        assert target["instant"], "a range query would ask for it at every step"
    assert target["instant"] != target["range"]


NEVER_ZERO = {"gputrace:month_length:hours"}


@every_query
def test_divisions_are_guarded(expr):
    for node in nodes(parsed(expr)):
        if isinstance(node, promql.BinaryExpr) and str(node.op) == "/":
            divisor = node.rhs
            while isinstance(divisor, promql.ParenExpr):
                divisor = divisor.expr
            if isinstance(divisor, promql.NumberLiteral):
                assert divisor.val
                continue
            if {one.name for one in selectors(divisor)} <= NEVER_ZERO:
                continue
            guarded = isinstance(divisor, promql.BinaryExpr) and str(divisor.op) == ">"
            assert guarded, str(divisor)
            assert not (divisor.modifier and divisor.modifier.return_bool), str(divisor)


def stands_on_nothing(node: Any) -> bool:
    """Whether an expression has a value though nothing at all was ever recorded."""
    if isinstance(node, promql.BinaryExpr):
        sides = (stands_on_nothing(node.lhs), stands_on_nothing(node.rhs))
        return any(sides) if str(node.op) == "or" else all(sides)
    return not selectors(node)


@every_target
def test_nothing_is_said_of_what_is_not_there(board, panel, target):
    """`or vector(0)` at the end would call an empty database free of faults."""
    assert not stands_on_nothing(parsed(target["expr"]))


@every_target
def test_money_is_of_one_currency(board, panel, target):
    for selector in selectors(parsed(target["expr"])):
        if (
            selector.name in NOT_OURS
            or selector.name is None
            or "gputrace_currency" not in labels_of(selector.name)
        ):
            continue
        chosen = [one.value for one in selector.matchers.matchers if one.name == "gputrace_currency"]
        assert chosen == ["value-of-currency"], selector.name


@pytest.mark.parametrize("alert", rules.ALERTS, ids=lambda alert: alert.name)
def test_alerts_add_no_two_currencies(alert):
    for node, above in with_parents(promql.parse(alert.expr)):
        named = isinstance(node, promql.VectorSelector) and node.name in {
            *EMITTED,
            *(one.name for one in RECORDED),
        }
        if named and "gputrace_currency" in labels_of(node.name):
            sums = [one for one in above if isinstance(one, promql.AggregateExpr)]
            assert sums
            assert all("gputrace_currency" in one.modifier.labels for one in sums)


@every_target
def test_answers_are_narrowed_by_the_variables_of_the_board(board, panel, target):
    """Unless a panel says that it shows everything: devices are published by agents, for all services."""
    for selector in selectors(parsed(target["expr"])):
        if selector.name is None or selector.name in NOT_OURS or not labels_of(selector.name):
            continue
        narrowed = {one.name for one in selector.matchers.matchers if one.value.startswith("value-of-")}
        if "deployment_environment_name" in labels_of(selector.name):
            assert "deployment_environment_name" in narrowed, selector.name


# --- 3: units ----------------------------------------------------------------


def unit_of(panel: dict[str, Any], target: dict[str, Any]) -> tuple[str, int | None]:
    """Of the column that the target fills in a table, else of the panel."""
    defaults = panel["fieldConfig"]["defaults"]
    if panel["type"] != "table":
        return defaults["unit"], defaults.get("decimals")
    several = len(panel["targets"]) > 1
    organised = next(one for one in panel["transformations"] if one["id"] == "organize")["options"]
    column = organised["renameByName"][f"Value #{target['refId']}" if several else "Value"]
    (properties,) = [
        {one["id"]: one["value"] for one in override["properties"]}
        for override in panel["fieldConfig"]["overrides"]
        if override["matcher"]["options"] == column
    ]
    return properties["unit"], properties.get("decimals")


@every_target
def test_the_unit_is_what_the_query_measures(board, panel, target):
    unit, decimals = unit_of(panel, target)
    dimension = measured_in(parsed(target["expr"])) or {}
    if panel["type"] == "heatmap":
        dimension, unit = {"s": 1}, panel["options"]["yAxis"]["unit"]
    assert unit in GRAFANA[frozenset(dimension.items())], f"{dimension} in {unit}"
    if "currency" in dimension:
        assert decimals is not None
        assert decimals >= MONEY_DECIMALS
        assert "$currency" in panel["title"]
    if unit == "percentunit":
        shares = [one for one in nodes(parsed(target["expr"])) if isinstance(one, promql.BinaryExpr)]
        ratios = {name for name, metric in EMITTED.items() if metric.unit == "{ratio}"}
        assert (
            any(str(one.op) == "/" for one in shares)
            or re.search(r"_ratio|quantity=", target["expr"])
            or selectors(parsed(target["expr"]))[0].name in ratios
        )


# --- 5: panels ---------------------------------------------------------------


@every_panel
def test_a_panel_says_what_it_is(board, panel):
    defaults = panel["fieldConfig"]["defaults"]
    assert panel["type"] in PANEL_TYPES
    assert panel["title"]
    assert len(panel["description"]) > 60
    assert panel["description"].split("\n\n")[0].endswith(".")
    assert defaults["unit"]
    assert len(defaults["noValue"]) > 5, "says why there is nothing"
    assert panel["targets"]
    assert {one["id"] for one in panel["transformations"]} <= TRANSFORMATIONS
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for target in panel["targets"]:
        assert target["datasource"] == panel["datasource"]
        assert target["interval"] == "1m"
    names = set(re.findall(r"gputrace_\w+|hw_\w+_\w+", panel["description"].rpartition("Metrics:")[2]))
    assert names <= {metric.prometheus for metric in catalogue.METRICS}
    ours = [name for one in panel["targets"] for name in (s.name for s in selectors(parsed(one["expr"])))]
    assert names or not set(filter(None, ours)) - set(NOT_OURS)


@every_panel
def test_bars_in_tables_are_measured_by_their_own_column(board, panel):
    for override in panel["fieldConfig"]["overrides"]:
        found = {one["id"]: one["value"] for one in override["properties"]}
        if found.get("custom.cellOptions", {}).get("type") == "gauge":
            assert found["fieldMinMax"]
            assert found["min"] == 0


@every_board
def test_panels_have_a_place_of_their_own(board):
    numbers = [panel["id"] for panel in panels(board)]
    assert sorted(set(numbers)) == sorted(numbers)
    taken: set[tuple[int, int]] = set()
    for panel in panels(board):
        place = panel["gridPos"]
        assert 0 <= place["x"] <= place["x"] + place["w"] <= 24
        cells = {
            (place["x"] + column, place["y"] + row)
            for column in range(place["w"])
            for row in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_a_state_has_one_colour_on_every_board():
    colours: dict[str, set[str]] = {}
    states = {*catalogue.DEVICE_STATES, *catalogue.CALL_STATUSES, *catalogue.ESCALATION_DECISIONS}
    for board in BOARDS.values():
        for panel in panels(board):
            for override in panel.get("fieldConfig", {}).get("overrides", []):
                for one in override["properties"]:
                    if one["id"] == "color" and override["matcher"]["options"] in states:
                        colours.setdefault(override["matcher"]["options"], set()).add(
                            one["value"]["fixedColor"]
                        )
    assert {name: len(found) for name, found in colours.items()} == dict.fromkeys(states, 1)


@every_target
def test_states_are_coloured_wherever_they_are_drawn(board, panel, target):
    drawn = {
        "{{gputrace_device_state}}": catalogue.DEVICE_STATES,
        "{{gputrace_status}}": catalogue.CALL_STATUSES,
        "{{gputrace_escalation_decision}}": catalogue.ESCALATION_DECISIONS,
    }
    states = set(drawn.get(target["legendFormat"], ()))
    coloured = {
        override["matcher"]["options"]
        for override in panel["fieldConfig"]["overrides"]
        if any(one["id"] == "color" for one in override["properties"])
    }
    assert states <= coloured


# --- 6: variables and links --------------------------------------------------


@every_board
def test_a_board_can_be_provisioned_anywhere(board):
    text = json.dumps(board)
    assert "__inputs" not in text
    assert "DS_" not in text
    assert board["schemaVersion"] == 42
    assert board["editable"] is False
    assert board["tags"] == ["gputrace"]
    assert board["description"]
    assert board["graphTooltip"] == 1
    source = variables(board)["datasource"]
    assert (source["type"], source["query"], source["current"]) == ("datasource", "prometheus", {})


@pytest.mark.parametrize("path", BOARDS)
def test_a_board_is_named_after_its_uid(path):
    assert path == f"dashboards/{BOARDS[path]['uid']}.json"


@every_board
def test_all_matches_what_has_no_such_label(board):
    for name, variable in variables(board).items():
        if variable["includeAll"]:
            assert variable["allValue"] == ".*", "All must match series without the label too"
            assert variable["multi"]
            matchers = [
                one
                for panel in panels(board)
                for target in panel.get("targets", [])
                for selector in selectors(parsed(target["expr"]))
                for one in selector.matchers.matchers
                if one.value == f"value-of-{name}"
            ]
            assert matchers
            assert all(one.op == promql.MatchOp.Re for one in matchers), "several values, or all, need =~"
        elif variable["type"] == "query":
            assert not variable["multi"]
    assert not variables(board)["currency"]["multi"] if "currency" in variables(board) else True


@every_board
def test_variables_are_read_from_what_is_emitted(board):
    for variable in variables(board).values():
        if variable["type"] != "query":
            continue
        asked = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
        assert asked, variable["definition"]
        assert variable["query"]["query"] == variable["definition"]
        (selector,) = selectors(parsed(asked[1]))
        assert asked[2] in labels_of(selector.name)
        before = list(variables(board))[: list(variables(board)).index(variable["name"])]
        used = set(re.findall(r"\$(\w+)", asked[1]))
        assert used <= set(before), "a variable depends on those before it"


@every_board
def test_every_variable_is_used_and_every_used_one_is_there(board):
    text = json.dumps([board["panels"], board["annotations"]])
    builtin = {"__field", "__value", "__from", "__to", "__range", "__rate_interval"}
    used = set(re.findall(r"\$\{?(\w+)", text)) - builtin
    assert used - {"labels"} <= set(variables(board))
    narrowing = set(variables(board)) - used
    assert narrowing == set()


@every_board
def test_links_lead_to_boards_that_are_shipped(board):
    shipped = {one["uid"] for one in BOARDS.values()}
    assert {one["url"].removeprefix("/d/") for one in board["links"]} == shipped - {board["uid"]}
    for link in board["links"]:
        assert link["includeVars"]
        assert link["keepTime"]
    for url in re.findall(r'"url": "(/d/[^"]+)"', json.dumps(board["panels"])):
        uid, _, query = url.removeprefix("/d/").partition("?")
        target = next(one for one in BOARDS.values() if one["uid"] == uid)
        assert set(re.findall(r"var-(\w+)=", query)) <= set(variables(target))
        assert "from=${__from}" in query


@pytest.mark.parametrize("alert", rules.ALERTS, ids=lambda alert: alert.name)
def test_alerts_lead_to_boards_that_are_shipped(alert):
    target = next(one for one in BOARDS.values() if one["uid"] == alert.board)
    assert {name for name, _ in alert.chosen} <= set(variables(target))
    assert alert.severity in {"page", "ticket"}
    labels = {label for _, label in alert.chosen} | set(re.findall(r"\$labels\.(\w+)", alert.summary))
    assert labels <= grouped_by(promql.parse(alert.expr))


# --- 7: what is committed ----------------------------------------------------


def test_the_committed_files_are_those_that_the_code_writes():
    files = {f"grafana/{path}": text for path, text in output.generated().items()}
    files["docs/runbooks.md"] = rules.runbook_page()
    changed = [path for path, text in files.items() if (ROOT / path).read_text() != text]
    assert changed == [], "run `make dashboards`"
    written = {*(ROOT / "grafana/dashboards").iterdir(), *(ROOT / "grafana/prometheus/rules").iterdir()}
    assert {path.relative_to(ROOT).as_posix() for path in written} == set(files) - {"docs/runbooks.md"}


def test_every_static_file_is_listed():
    there = {
        path.relative_to(ROOT / "grafana").as_posix()
        for path in (ROOT / "grafana").rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc", ".sh"}
    }
    assert there == {*output.STATIC, *output.generated()}
