"""Steps of model servers in the report: who spent them, on what, and how sure that is."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from gputrace import catalogue
from gputrace.analysis.render import print_report
from gputrace.analysis.reporting import spend_report

STEPS = """import gputrace
from gputrace import Work

gputrace.configure()
for _ in range(20):
    with gputrace.attribute_to(feature="rag"):
        reading = gputrace.member()
    with gputrace.attribute_to(feature="chat"):
        writing = gputrace.member()
    with gputrace.step([reading, writing], [Work(prefill=30, cached=2), Work(decode=1, context=9)],
                       model="llm"):
        sum(range(200_000))
gputrace.flush()
"""
SERVER = {catalogue.MODEL: "llm", catalogue.HW_TYPE: "gpu", catalogue.HW_NAME: "H100"}
MANY = {**SERVER, catalogue.STEP_REGIME: catalogue.STEP_REGIMES[-1]}


def spent(one, feature, prefill_s, decode_s, weights="fitted", **more):
    """Charge a feature for steps."""
    of = {catalogue.FEATURE: feature, **SERVER, **more}
    for phase, seconds in (("prefill", prefill_s), ("decode", decode_s)):
        named = {**of, catalogue.STEP_PHASE: phase, catalogue.STEP_WEIGHTS: weights}
        one.add(catalogue.STEP_TIME, seconds, named)
        one.add(catalogue.FEATURE_TIME, seconds, of)


def tokens(one, feature, **kinds):
    for kind, count in kinds.items():
        of = {catalogue.FEATURE: feature, **SERVER, catalogue.STEP_KIND: kind}
        one.add(catalogue.STEP_TOKENS, count, of)


def learnt(one, steps, residual, version=3, **coefficients):
    one.show(catalogue.STEP_WEIGHT_STEPS, steps, MANY)
    one.show(catalogue.STEP_WEIGHT_RESIDUAL, residual, MANY)
    one.show(catalogue.STEP_WEIGHT_VERSION, version, MANY)
    for name, (value, error) in coefficients.items():
        of = {**MANY, catalogue.STEP_COEFFICIENT: name}
        one.show(catalogue.STEP_WEIGHT, value, of)
        one.show(catalogue.STEP_WEIGHT_ERROR, error, of)


@pytest.fixture
def one(program):
    """Two features on one server: `rag` reads long prompts, `chat` writes long answers."""
    made = program()
    made.device(charged=10.0, idle=2.0)
    spent(made, "rag", 5.0, 1.0)
    spent(made, "chat", 1.0, 2.0)
    spent(made, "chat", 0.5, 0.5, weights="constants")
    tokens(made, "rag", prefill=4_000, decode=100, cached=900, recomputed=50)
    tokens(made, "chat", prefill=600, decode=300)
    made.add(catalogue.STEPS, 40, MANY)
    for feature, count in (("rag", 60), ("chat", 100)):
        made.add(catalogue.STEP_MEMBERS, count, {catalogue.FEATURE: feature, **SERVER})
    made.add(catalogue.STEP_CACHED_TIME, 0.9, {catalogue.FEATURE: "rag", **SERVER})
    made.add(catalogue.STEP_RECOMPUTED_TIME, 0.05, {catalogue.FEATURE: "rag", **SERVER})
    made.show(catalogue.STEP_SHARE_ERROR, 0.002, {catalogue.FEATURE: "rag", **SERVER})
    return made


@pytest.fixture
def servers(one, report):
    def read(**arguments):
        one.export()
        found = report(**arguments).to_json()["model_servers"]
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        return found

    return read


def test_a_server_is_summed_up(servers):
    (server,) = servers()
    assert (server["model"], server["type"], server["steps"]) == ("llm", "gpu", 40)
    assert server["charged_s"] == pytest.approx(10)
    assert (server["prefill_s"], server["decode_s"]) == (pytest.approx(6.5), pytest.approx(3.5))
    assert server["sequences"] == 4
    assert server["tokens"] == {"prefill": 4_600, "decode": 400, "cached": 900, "recomputed": 50}
    assert server["tokens_per_s"] == pytest.approx(500)
    assert server["constants_share"] == pytest.approx(0.1)
    assert (server["cached_s"], server["recomputed_s"]) == (0.9, 0.05)
    assert (server["cost"], server["currency"], server["tokens_per_currency"]) == (None, None, None)


def test_its_time_is_that_of_its_features(servers):
    (server,) = servers()
    rag, chat = server["features"]
    assert (rag["feature"], rag["charged_s"], rag["share"]) == ("rag", pytest.approx(6), pytest.approx(0.6))
    assert (rag["share_error"], chat["share_error"]) == (0.002, None)
    assert (chat["prefill_s"], chat["decode_s"]) == (pytest.approx(1.5), pytest.approx(2.5))
    assert rag["cached_s"] == 0.9
    assert chat["tokens"] == {"prefill": 600, "decode": 300, "cached": 0, "recomputed": 0}
    assert server["tenants"] == []


def test_tenants_are_told_where_metrics_have_them(one, servers):
    spent(one, "rag", 2.0, 0.0, **{catalogue.TENANT: "acme"})
    (server,) = servers()
    (acme,) = server["tenants"]
    assert (acme["feature"], acme["tenant"], acme["charged_s"]) == ("rag", "acme", pytest.approx(2))
    assert server["features"][0]["charged_s"] == pytest.approx(8)


def test_money_is_what_the_seconds_of_its_model_cost(one, servers):
    one.add(catalogue.FEATURE_COST, 20.0, {**SERVER, catalogue.FEATURE: "rag", catalogue.CURRENCY: "EUR"})
    (server,) = servers()
    assert (server["cost"], server["currency"]) == (pytest.approx(20), "EUR")
    assert server["tokens_per_currency"] == pytest.approx(250)


def test_two_currencies_are_not_added(one, servers):
    for currency in ("EUR", "USD"):
        one.add(
            catalogue.FEATURE_COST, 20.0, {**SERVER, catalogue.FEATURE: "a", catalogue.CURRENCY: currency}
        )
    (server,) = servers()
    assert server["cost"] is None


def test_weights_are_those_learnt_from_the_most_steps(one, program, servers):
    learnt(one, 600, 0.1, fixed=(0.004, 0.0001), prefill=(4e-5, 1e-6))
    other = program(instance="i2")
    learnt(other, 9_000, 0.05, fixed=(0.005, 0.0002))
    other.export()
    (server,) = servers()
    (weight,) = server["weights"]
    assert (weight["coefficient"], weight["value_s"], weight["error_s"]) == ("fixed", 0.005, 0.0002)
    assert (weight["steps"], weight["residual"], weight["version"]) == (9_000, 0.05, 3)
    assert (weight["device"], weight["regime"]) == ("H100", catalogue.STEP_REGIMES[-1])


def test_a_gauge_is_what_it_was_last_and_nothing_once_it_is_gone(one, servers):
    learnt(one, 600, 0.1, fixed=(0.004, 0.0001))
    one.export()
    learnt(one, 700, 0.2, fixed=(0.002, 0.0001))
    assert servers()[0]["weights"][0]["value_s"] == 0.002
    # The residual became too large: documented constants again.
    one.counters[catalogue.STEP_WEIGHT.name].clear()
    assert servers()[0]["weights"] == []


def test_without_steps_there_is_no_server(program, report):
    made = program()
    made.device(charged=1.0)
    made.call(1.0, feature="a", model="m")
    made.export()
    assert report().to_json()["model_servers"] == []


def printed(found):
    console = Console(file=io.StringIO(), width=150)
    print_report(found, console)
    return console.file.getvalue()


def test_what_is_printed(one, report):
    learnt(one, 600, 0.1, fixed=(0.004, 0.0001), context=(4e-10, 1e-11))
    one.export()
    text = printed(report())
    assert "Model server llm (gpu): 40 steps of 4.0 sequences, 500 tokens a device second" in text
    (rag,) = [line for line in text.splitlines() if line.startswith("rag") and "900" in line]
    assert "6.000" in rag
    assert "60.0%" in rag
    assert "0.2" in rag
    assert "4ms ± 100us a step" in text.replace("µ", "u").replace("4.00ms", "4ms").replace("4.0ms", "4ms")
    assert "0.4ns" in text
    assert "10.0% of its time was split by documented constants" in text


def unsplit(one, feature, seconds):
    """Charge a feature for steps whose work could not be used."""
    of = {catalogue.FEATURE: feature, **SERVER}
    named = {**of, catalogue.STEP_PHASE: "other", catalogue.STEP_WEIGHTS: "none"}
    one.add(catalogue.STEP_TIME, seconds, named)
    one.add(catalogue.FEATURE_TIME, seconds, of)


def test_time_of_steps_whose_work_is_unknown_is_a_column_that_says_so(one, servers, report):
    unsplit(one, "chat", 4.0)
    (server,) = servers()
    assert server["other_s"] == pytest.approx(4)
    chat, rag = server["features"]
    assert (chat["other_s"], rag["other_s"]) == (pytest.approx(4), 0)
    for part in (server, chat, rag):
        assert part["prefill_s"] + part["decode_s"] + part["other_s"] == pytest.approx(part["charged_s"])
    text = printed(report())
    (line,) = [line for line in text.splitlines() if line.startswith("chat") and "600" in line]
    assert "18.8%" in line
    assert "31.2%" in line
    assert "50.0%" in line
    assert "4.000 s were charged for steps whose work was not told or could not be used" in " ".join(
        text.split()
    )


def test_without_such_steps_there_is_no_such_column(one, report):
    one.export()
    text = printed(report())
    assert "other" not in text
    assert "whose work" not in text


def test_a_server_of_which_no_step_could_be_used_has_no_speed(program, report):
    """It took steps, and nobody knows how many, nor of what: 0 would be a lie."""
    made = program()
    made.device(charged=3.0)
    unsplit(made, "chat", 3.0)
    made.export()
    (server,) = report().model_servers
    assert (server.steps, server.tokens_per_s) == (0, None)
    text = printed(report())
    assert "Model server llm (gpu): no step that is counted" in text
    assert "0 steps" not in text
    assert "0 tokens" not in text


def test_what_steps_wrote_is_what_is_reported(run_python, tmp_path):
    """Through the SDK: shares sum to what was charged, and tokens are those that were given."""
    run_python(STEPS, GPUTRACE_DATA_DIR=str(tmp_path / "data"))
    found = spend_report(tmp_path / "data", ("feature",), None, percentiles=False).to_json()
    (server,) = found["model_servers"]
    assert (server["steps"], server["sequences"]) == (20, 2)
    assert server["tokens"] == {"prefill": 600, "decode": 20, "cached": 40, "recomputed": 0}
    charged = {row["feature"]: row["charged_s"] for row in found["rows"] if row["charged_s"]}
    assert {one["feature"]: one["charged_s"] for one in server["features"]} == pytest.approx(charged)
    assert server["charged_s"] == pytest.approx(sum(charged.values()))
    assert server["constants_share"] == 1
