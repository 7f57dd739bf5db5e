"""What the model servers' board computes: money by device, batches of everybody, the best learnt weights."""

from __future__ import annotations

import pytest

from gputrace import catalogue
from gputrace.grafana import model_servers, recorded, server_queries, server_weights
from tests.grafana.promtool import RATES, SUMS, near

pytestmark = pytest.mark.requires("promtool")

CHAT = 'job="llm", gputrace_feature="chat", gputrace_model="m"'
MAIL = 'job="llm", gputrace_feature="mail", gputrace_model="m"'
FAST, SLOW = 'hw_type="gpu", hw_name="H100"', 'hw_type="gpu", hw_name="T4"'
PREFILL = 'gputrace_step_phase="prefill", gputrace_step_weights="fitted"'
DECODE = 'gputrace_step_phase="decode", gputrace_step_weights="constants"'
#: A minute each: 60 s at 10 a second on the fast one, half of it no step, and 60 s at 1 on the slow one.
SERIES = {
    f"gputrace_feature_time_seconds_total{{{CHAT}, {FAST}}}": "0+60x90",
    f'gputrace_feature_cost_total{{{CHAT}, {FAST}, gputrace_currency="USD"}}': "0+600x90",
    f"gputrace_feature_time_seconds_total{{{MAIL}, {SLOW}}}": "0+60x90",
    f'gputrace_feature_cost_total{{{MAIL}, {SLOW}, gputrace_currency="USD"}}': "0+60x90",
    f"gputrace_step_time_seconds_total{{{CHAT}, {FAST}, {PREFILL}}}": "0+20x90",
    f"gputrace_step_time_seconds_total{{{CHAT}, {FAST}, {DECODE}}}": "0+10x90",
    f"gputrace_step_time_seconds_total{{{MAIL}, {SLOW}, {PREFILL}}}": "0+60x90",
    f'gputrace_step_tokens_total{{{CHAT}, {FAST}, gputrace_step_kind="prefill"}}': "0+600x90",
    f'gputrace_step_tokens_total{{{CHAT}, {FAST}, gputrace_step_kind="decode"}}': "0+300x90",
    f'gputrace_step_tokens_total{{{CHAT}, {FAST}, gputrace_step_kind="cached"}}': "0+200x90",
    f'gputrace_step_tokens_total{{{CHAT}, {FAST}, gputrace_step_kind="recomputed"}}': "0+60x90",
    f"gputrace_step_cached_time_seconds_total{{{CHAT}, {FAST}}}": "0+6x90",
    f"gputrace_step_recomputed_time_seconds_total{{{CHAT}, {FAST}}}": "0+2x90",
    f"gputrace_step_members_total{{{CHAT}, {FAST}}}": "0+120x90",
    f"gputrace_step_members_total{{{MAIL}, {FAST}}}": "0+240x90",
    f'gputrace_steps_total{{job="llm", gputrace_model="m", {FAST}, gputrace_step_regime="0"}}': "0+30x90",
    f'gputrace_steps_total{{job="llm", gputrace_model="m", {FAST}, gputrace_step_regime="512+"}}': "0+10x90",
}
CHOSEN = {"currency": "USD", "environment": ".*", "job": ".*", "model": ".*", "feature": "chat"}


def asked(expr: str) -> str:
    """As Grafana asks for it, of one feature over an hour."""
    for name, value in CHOSEN.items():
        expr = expr.replace(f'"${name}"', f'"{value}"')
    return expr.replace("$__range", "1h")


def shown(title: str, reference: int = 0) -> str:
    """What a panel of the board asks for."""
    (panel,) = [one for row in model_servers.board().rows for one in row.panels if one.title == title]
    return asked(panel.queries[reference].expr)


@pytest.mark.parametrize(
    ("title", "value"),
    [
        ("Device hours of steps", 0.5),
        # Of two kinds of devices, only that of the feature counts, at its own price.
        ("Spend of steps ($currency)", 18_000),
        ("Saved by caches ($currency)", 3_600),
        ("Recomputation ($currency)", 1_200),
        ("Time on prompts", 2 / 3),
        # Cached tokens were not computed, recomputed ones are among those of prompts.
        ("Tokens a device second", 30),
        ("Tokens for 1 $currency", 3),
        ("A million tokens ($currency)", 1_000_000 / 3),
        ("From the cache", 0.25),
        ("Computed twice", 0.1),
        # Of the server, whoever is chosen.
        ("Split by documented constants", 1 / 9),
        ("Split in equal parts", 0),
    ],
)
def test_a_number_is_what_was_exported(evaluate, title, value):
    expr = shown(title)
    true = near(expr, value) if value else f"{expr} == 0"
    evaluate([RATES, SUMS], SERIES, [("82m", true)], every="5m")


@pytest.mark.parametrize("feature", ["chat", "chat|mail"])
def test_a_batch_holds_the_sequences_of_everybody(evaluate, monkeypatch, feature):
    monkeypatch.setitem(CHOSEN, "feature", feature)
    whole = shown("Sequences a step, by model")
    own = shown("Sequences a step, by feature")
    true = [("82m", near(f"sum({whole})", 9)), ("82m", near(f"sum({own})", 3 if feature == "chat" else 9))]
    evaluate([RATES, SUMS], SERIES, true, every="5m")


def test_each_kind_of_device_has_its_price(evaluate):
    spent = asked(server_queries.money(recorded.STEP_TIME, per=(catalogue.FEATURE,))).replace(
        '"chat"', '".*"'
    )
    true = [
        ("82m", near(f"sum({spent})", 18_000 + 3_600)),
        ("82m", f"count({spent}) == 2"),
    ]
    evaluate([RATES, SUMS], SERIES, true, every="5m")


def test_a_share_is_of_all_time_of_the_model(evaluate):
    (panel,) = [one for one in model_servers.board().rows[0].panels if one.title.startswith("Features on")]
    (share,) = [
        asked(one.expr) for one in panel.queries if "group_left () (sum by (gputrace_model) " in one.expr
    ]
    evaluate([RATES, SUMS], SERIES, [("82m", near(f"sum({share})", 1 / 3))], every="5m")


def test_weights_are_of_the_process_that_learnt_most(evaluate):
    of = f'job="llm", instance="%s", gputrace_model="m", {FAST}, gputrace_step_regime="0"'
    series = {
        f"gputrace_step_weight_steps{{{of % 'new'}}}": "500x60",
        f"gputrace_step_weight_steps{{{of % 'old'}}}": "9000x60",
        f'gputrace_step_weight_value_seconds{{{of % "new"}, gputrace_step_coefficient="fixed"}}': "7x60",
        f'gputrace_step_weight_value_seconds{{{of % "old"}, gputrace_step_coefficient="fixed"}}': "2x60",
    }
    value = asked(server_weights.learnt(catalogue.STEP_WEIGHT, catalogue.STEP_COEFFICIENT))
    evaluate([], series, [("30m", f"sum({value}) == 2")])


def test_what_steps_never_do_is_not_free(evaluate):
    """Steps that compute no prompt say nothing of a prompt token: no row, where a 0 would be one."""
    of = f'job="llm", instance="one", gputrace_model="m", {FAST}, gputrace_step_regime="0"'
    series = {
        f"gputrace_step_weight_steps{{{of}}}": "900x60",
        f'gputrace_step_weight_value_seconds{{{of}, gputrace_step_coefficient="fixed"}}': "2x60",
        f'gputrace_step_weight_value_seconds{{{of}, gputrace_step_coefficient="prefill"}}': "0x60",
    }
    value = shown("Weights")
    evaluate([], series, [("30m", f"count({value}) == 1"), ("30m", f"sum({value}) == 2")])
