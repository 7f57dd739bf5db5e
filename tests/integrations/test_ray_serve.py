"""Real Ray Serve, started once: what each kind of call was billed to, and charged by the log of the GPU."""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

pytestmark = [pytest.mark.requires("ray", "fastapi", "httpx"), pytest.mark.timeout(300)]

HERE = Path(__file__).resolve().parent
FEATURES = {"a": "fa", "bbb": "fb", "cccc": "fb"}


class Traffic:
    """What was answered, exported and run while Serve was up."""

    def __init__(self, folder: Path, files: Any) -> None:
        self.files = files
        self.answers = json.loads((folder / "answers.json").read_text())
        lines = [line for path in folder.glob("truth/*.jsonl") for line in path.read_text().splitlines()]
        self.truth = [json.loads(line) for line in lines]
        self.spans = {
            span["attributes"]["gputrace.call.id"]: span
            for span in files.spans
            if "gputrace.call.id" in span["attributes"]
        }

    def answer(self, path: str) -> Any:
        """The one answer to a path, as JSON."""
        ((status, text),) = self.answers[path]
        assert status == 200, text
        return json.loads(text)

    def ran(self, model: str | None) -> list[dict[str, Any]]:
        return [one for one in self.truth if one["model"] == model]

    def spent_ns(self, *names: str, **where: str) -> dict[tuple[str, ...], float]:
        """Charged ns of calls by the last words of metric attributes; of one that is absent, ''."""
        found: dict[tuple[str, ...], float] = collections.defaultdict(float)
        for (_, attributes), values in self.files.values("gputrace.feature.time", **where).items():
            words = {name.rpartition(".")[2]: value for name, value in attributes}
            if values[-1]:
                found[tuple(words.get(name, "") for name in names)] += values[-1] * 1e9
        return dict(found)

    def requests(self, **where: str) -> dict[tuple[str, str, str], float]:
        """Number of requests by route, feature and status."""
        found: dict[tuple[str, str, str], float] = collections.defaultdict(float)
        for (_, attributes), values in self.files.values("gputrace.requests", **where).items():
            words = {name.rpartition(".")[2]: value for name, value in attributes}
            found[words["route"], words["feature"], words["status"]] += values[-1]
        return {key: count for key, count in found.items() if count}

    def named(self, name: str) -> list[dict[str, Any]]:
        return [span for span in self.spans.values() if span["name"] == name]


@pytest.fixture(scope="module")
def traffic(
    tmp_path_factory: pytest.TempPathFactory,
    read_files: Callable[[Path], Any],
    needs: Callable[..., None],
    unused_tcp_port_factory: Callable[[], int],
) -> Traffic:
    needs("ray")
    folder = tmp_path_factory.mktemp("serve")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAY_"))
    }
    path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(HERE)])
    environment |= {"PYTHONPATH": path, "GPUTRACE_NODE_DIR": str(folder / "node")}
    command = [sys.executable, str(HERE / "serve_traffic.py"), str(folder), str(unused_tcp_port_factory())]
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Traffic(folder, read_files(folder / "data"))


def about(ns: float) -> Any:
    """A microsecond, and what the map of the device's clock to the host's may bend by: 500 ppm."""
    return pytest.approx(ns, rel=5e-4, abs=1_000)


def summed(ran: Iterable[dict[str, Any]]) -> float:
    return sum(one["ns"] for one in ran)


def test_every_call_is_charged_what_the_gpu_spent_on_it(traffic: Traffic) -> None:
    assert traffic.truth
    seconds = {one["id"]: traffic.spans[one["id"]]["attributes"] for one in traffic.truth}
    charged = {call: float(of["gputrace.call.device.time"]) * 1e9 for call, of in seconds.items()}
    assert charged == {one["id"]: about(one["ns"]) for one in traffic.truth}


def test_a_plain_deployment_is_a_route_and_a_stage(traffic: Traffic) -> None:
    assert traffic.answer("/plain?tenant=acme") == ["/plain", "acme", "Plain", None]
    assert traffic.requests(route="/plain") == {
        ("/plain", "/plain", "ok"): 1,
        ("/plain", "/plain", "error"): 1,
        ("/plain", "/plain", "cancelled"): 1,
    }
    spent = traffic.spent_ns("feature", "tenant", "stage", model="plain")
    assert set(spent) == {("/plain", "acme", "Plain"), ("/plain", "gone", "Plain")}
    assert sum(spent.values()) == about(summed(traffic.ran("plain")))


@pytest.mark.parametrize("path", ["/asked/answers/7?tenant=acme", "/asked/grpc/5"])
def test_feature_and_tenant_are_equal_at_the_leaf_on_either_transport(traffic: Traffic, path: str) -> None:
    tenant = "acme" if "acme" in path else None
    assert traffic.answer(path) == [
        ["answers", tenant, "Asked", None],
        ["answers", tenant, "Middle", None],
        ["answers", tenant, "Leaf", None],
    ]


def test_what_ran_below_is_billed_to_the_feature_of_the_ingress(traffic: Traffic) -> None:
    expected = collections.Counter[str]()
    for one in traffic.ran("leaf"):
        expected[one["feature"]] += one["ns"]
    by_feature = traffic.spent_ns("feature", operation="run leaf")
    assert by_feature == {(feature,): about(ns) for feature, ns in expected.items()}
    assert ("nightly",) in by_feature


def test_a_call_of_a_program_is_billed_as_it_says_unless_the_method_is_marked(traffic: Traffic) -> None:
    assert traffic.answers["from here"] == [
        ["nightly", "acme", "Leaf", None],
        ["its own", "acme", "Leaf", None],
    ]


def test_a_forged_header_changes_nothing(traffic: Traffic) -> None:
    everything = json.dumps([span["attributes"] for span in traffic.files.spans])
    assert "forged" not in everything
    assert "forged" not in json.dumps(traffic.answers)


def test_hops_are_one_trace(traffic: Traffic) -> None:
    (asked,) = traffic.named("GET /answers/{number}")
    of_trace = {span["spanId"]: span for span in traffic.files.spans if span["traceId"] == asked["traceId"]}
    (leaf,) = [span for span in of_trace.values() if span["name"] == "run leaf"]
    upward = []
    while leaf is not None:
        upward.append(leaf["name"])
        leaf = of_trace.get(leaf.get("parentSpanId"))
    # FastAPI has spans of its own between.
    ours = [name for name in upward if not name.startswith("fastapi.")]
    assert ours[:4] == ["run leaf", "Leaf.compute", "Middle.hand_on", "GET /answers/{number}"]


def test_a_stage_that_was_named_is_kept_and_one_that_was_not_is_the_deployment(traffic: Traffic) -> None:
    assert traffic.answer("/asked/stages") == [
        ["/stages", None, "small", None],
        ["/stages", None, "Leaf", None],
    ]


def test_a_streamed_answer_is_billed_to_its_end(traffic: Traffic) -> None:
    assert traffic.answers["/asked/stream?count=4"] == [[200, "0 1 2 3 "]]
    spent = traffic.spent_ns("feature", "stage", model="token")
    ran = [one for one in traffic.ran("token") if one["feature"] == "/stream"]
    assert spent["/stream", "Leaf"] == about(summed(ran))
    (request,) = traffic.named("Leaf.tokens")
    assert int(request["attributes"]["gputrace.request.call.count"]) == 4


def test_code_in_the_loop_of_the_replica_is_billed_alike(traffic: Traffic) -> None:
    assert traffic.answer("/asked/inline") == [["/inline", None, "Inline", None], [0, 1], [0, 1]]
    assert traffic.requests(feature="/inline") == {
        ("/inline", "/inline", "ok"): 1,
        ("Inline.compute", "/inline", "ok"): 1,
        ("Inline.tokens", "/inline", "ok"): 1,
        ("Inline.plain_tokens", "/inline", "ok"): 1,
    }
    ran = [one for one in traffic.truth if one.get("feature") == "/inline"]
    assert collections.Counter(one["model"] for one in ran) == {"leaf": 1, "token": 4}
    assert sum(traffic.spent_ns("stage", feature="/inline").values()) == about(summed(ran))


def test_options_of_an_instrumented_application_are_its_own(traffic: Traffic) -> None:
    assert traffic.answer("/tagged/tagged") == ["tagged", None, "Tagged", None]
    assert traffic.requests(route="/tagged") == {("/tagged", "tagged", "ok"): 1}


def test_an_application_without_a_framework_is_a_request_too(traffic: Traffic) -> None:
    assert traffic.answer("/framed") == ["bare", None, "Framed", None]
    assert traffic.requests(feature="bare") == {("unmatched", "bare", "ok"): 1}


def test_what_fails_is_charged_as_an_error_at_every_hop(traffic: Traffic) -> None:
    assert traffic.answers["/asked/fails"][0][0] == 500
    assert traffic.requests(route="/fails") == {("/fails", "/fails", "error"): 1}
    assert traffic.requests(route="Leaf.fails") == {("Leaf.fails", "/fails", "error"): 1}
    spent = traffic.spent_ns("feature", model="failing")
    assert spent == {("/fails",): about(summed(traffic.ran("failing")))}


def test_what_was_cancelled_is_charged_as_such(traffic: Traffic) -> None:
    assert traffic.answer("/asked/cancels") == "cancelled"
    assert traffic.requests(route="/cancels") == {("/cancels", "/cancels", "ok"): 1}
    assert traffic.requests(route="Leaf.sleeps") == {
        ("Leaf.sleeps", "/cancels", "cancelled"): 1,
        # Its client had gone, two hops up.
        ("Leaf.sleeps", "/sleeps", "cancelled"): 1,
    }
    spent = traffic.spent_ns("feature", model="sleeping")
    assert set(spent) == {("/cancels",), ("/sleeps",)}
    assert sum(spent.values()) == about(summed(traffic.ran("sleeping")))


def test_a_client_that_leaves_cancels_its_request(traffic: Traffic) -> None:
    assert traffic.requests(route="/sleeps") == {("/sleeps", "/sleeps", "cancelled"): 1}


@pytest.mark.parametrize("way", ["alike", "weighed", "streamed", "failing"])
def test_each_of_three_tenants_in_a_batch_is_charged_its_share(traffic: Traffic, way: str) -> None:
    model = "failing batch" if way == "failing" else way
    weights = traffic.ran(model)[0]["members"]
    whole = summed(traffic.ran(model))
    spent = traffic.spent_ns("tenant", "feature", operation=f"run {model}")
    assert spent == {
        (tenant, FEATURES[tenant]): about(whole * weight / sum(weights.values()))
        for tenant, weight in weights.items()
    }
    # What the function itself held besides is split in the same way.
    own = traffic.spent_ns("tenant", operation=f"Batched.{way}")
    assert own["cccc",] == about(own["a",] * weights["cccc"] / weights["a"])


def test_a_batch_that_hands_on_is_split_as_it_is_two_hops_below(traffic: Traffic) -> None:
    (ran,) = traffic.ran("below a batch")
    whole = sum(ran["members"].values())
    assert traffic.spent_ns("tenant", "feature", "stage", operation="run below a batch") == {
        (tenant, FEATURES[tenant], "Leaf"): about(ran["ns"] * weight / whole)
        for tenant, weight in ran["members"].items()
    }
    (below,) = traffic.named("Leaf.compute_batch")
    assert len(linked(below)) == 3


@pytest.mark.parametrize(("way", "status"), [("alike", "ok"), ("streamed", "ok"), ("failing", "error")])
def test_a_batch_is_linked_to_every_request_and_counted_once(traffic: Traffic, way: str, status: str) -> None:
    (batch,) = traffic.named(f"batch Batched.{way}")
    requests = [span for span in traffic.named("GET /batched") if span["spanId"] in linked(batch)]
    assert len(requests) == len(linked(batch)) == 3
    assert "parentSpanId" not in batch
    assert batch["attributes"]["gputrace.status"] == status
    assert {span["attributes"]["gputrace.status"] for span in requests} == {status}
    # Each waited for its batch, whose call is one of its own.
    assert {int(span["attributes"]["gputrace.request.call.count"]) for span in requests} == {1}
    shares = sum(float(span["attributes"]["gputrace.call.device.time"]) for span in requests)
    assert shares * 1e9 > summed(traffic.ran("failing batch" if way == "failing" else way))


def linked(span: dict[str, Any]) -> set[str]:
    return {link["spanId"] for link in span.get("links", ())}


def test_an_item_that_was_cancelled_in_the_queue_pays_nothing(traffic: Traffic) -> None:
    assert traffic.answer("/batched?way=left&feature=fa&tenant=a") == 1
    spent = traffic.spent_ns("tenant", operation="run left")
    assert spent == {("a",): about(summed(traffic.ran("left")))}
    # The queue began with one that asked for a model, and so did the task that runs its batches.
    assert set(traffic.spent_ns("model", operation="Batched.left")) == {("",)}
    (gone,) = [
        span for span in traffic.named("GET /batched") if span["attributes"]["gputrace.status"] == "cancelled"
    ]
    assert gone["attributes"]["gputrace.tenant"] == "gone"
    # Told with the others: nobody waits for the batch that it was never in.
    assert int(gone["attributes"]["gputrace.request.call.count"]) == 0


def test_the_model_of_a_multiplexed_deployment_is_the_one_that_was_asked_for(traffic: Traffic) -> None:
    answers = [json.loads(text) for _, text in traffic.answers["/multiplexed"]]
    assert [ingress[3] for ingress, _ in answers] == ["m1", "m2", "m1"]
    # It says nothing of the deployment behind.
    assert [leaf[3] for _, leaf in answers] == [None, None, None]
    spent = traffic.spent_ns("model", stage="Multiplexed")
    expected = collections.Counter[str]()
    for one in traffic.ran(None):
        expected[one["chosen"]] += one["ns"]
    assert spent == {(name,): about(ns) for name, ns in expected.items()}


def test_the_last_that_a_replica_does_is_not_lost(traffic: Traffic) -> None:
    assert len(traffic.ran("farewell")) == 2
    assert sum(traffic.spent_ns("stage", model="farewell").values()) == about(summed(traffic.ran("farewell")))


def test_replicas_that_come_and_go_lose_nothing(traffic: Traffic) -> None:
    assert traffic.answers["scaled down"] == [2]
    sent = len(traffic.answers["/scaled"])
    assert traffic.requests(route="/scaled") == {("/scaled", "/scaled", "ok"): sent}
    assert traffic.spent_ns("stage", operation="run scaled") == {
        ("Scaled",): about(summed(traffic.ran("scaled")))
    }
    assert len(traffic.ran("scaled")) == sent
