"""Models that a real Triton loads: each `model.py` begins with the lines of `PROLOGUE`, then one of these.

What they recorded stands in a file when they are unloaded.
"""

from __future__ import annotations

PROLOGUE = """
import site, sys
sys.path[:0] = {paths!r}
for path in {paths!r}:
    if path.endswith("site-packages"):
        # gputrace may be installed editable, which a file there says.
        site.addsitedir(path)
import json, os, time
import numpy as np
import triton_python_backend_utils as pb_utils
import gputrace
from gputrace.integrations import triton


def doubled(rows):
    # This backend was built for numpy 1.
    made = pb_utils.Tensor if np.__version__.startswith("1.") else pb_utils.Tensor.from_dlpack
    return made("DOUBLED", rows * 2)
"""

ENCODER = """
from gputrace.testing import Recorder

SPUN_NS = 2_000_000


@triton.instrument
class TritonPythonModel:
    def initialize(self, args):
        self.recorder = Recorder()
        self.recorder.__enter__()
        self.walls = []

    def execute(self, requests):
        begun = time.monotonic_ns()
        responses = []
        for request in requests:
            rows = pb_utils.get_input_tensor_by_name(request, "ROWS").as_numpy()
            while time.monotonic_ns() - begun < SPUN_NS:
                pass
            if rows.min() < 0:
                responses.append(pb_utils.InferenceResponse([], pb_utils.TritonError("negative")))
            else:
                responses.append(pb_utils.InferenceResponse([doubled(rows)]))
        self.walls.append((len(requests), time.monotonic_ns() - begun))
        return responses

    def finalize(self):
        settled = self.recorder.settled()
        totals = {}
        for series, amount in self.recorder.settler.totals.time.items():
            feature = series.attributes["gputrace.feature"]
            totals[feature] = totals.get(feature, 0) + amount
        with open({output!r}, "w") as file:
            json.dump({
                "walls": self.walls,
                "executes": [
                    {"operation": one.operation, "model": one.model, "duration_ns": one.duration_ns}
                    for one in settled if one.call.site.is_batch
                ],
                "requests": [
                    {"operation": one.operation, "feature": one.feature, "status": one.status,
                     "charged_ns": one.call.request.charged_ns, "calls": one.call.request.calls}
                    for one in settled if one.call.site.is_request
                ],
                "charged": totals,
            }, file)
"""

CHAIN = """
gputrace.configure(service_name="chain", data_dir={output!r})


@triton.instrument(hold="none")
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            rows = pb_utils.get_input_tensor_by_name(request, "ROWS")
            asked = pb_utils.InferenceRequest(
                model_name="encoder",
                requested_output_names=["DOUBLED"],
                inputs=[rows],
                parameters=triton.carrier(),
            )
            answer = asked.exec()
            with gputrace.span("after"):
                time.sleep(0.001)
            responses.append(pb_utils.InferenceResponse(
                [pb_utils.get_output_tensor_by_name(answer, "DOUBLED")]
            ))
        return responses
"""

TOKENS = """
gputrace.configure(service_name="tokens", data_dir={output!r})


@triton.instrument
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            rows = pb_utils.get_input_tensor_by_name(request, "ROWS").as_numpy()
            for _ in range(3):
                with gputrace.span("token"):
                    time.sleep(0.001)
                sender.send(pb_utils.InferenceResponse([doubled(rows)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

CONFIGURATION = """
name: "{name}"
backend: "python"
max_batch_size: {largest}
input [ {{ name: "ROWS" data_type: TYPE_FP32 dims: [ 2 ] }} ]
output [ {{ name: "DOUBLED" data_type: TYPE_FP32 dims: [ 2 ] }} ]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
"""
#: Eight that wait go at once, fewer after a second.
BATCHING = """
dynamic_batching {{ preferred_batch_size: [ {largest} ] max_queue_delay_microseconds: 1000000 }}
"""
DECOUPLED = "model_transaction_policy {{ decoupled: true }}\n"

MODELS = {
    "encoder": (ENCODER, CONFIGURATION + BATCHING),
    "chain": (CHAIN, CONFIGURATION),
    "tokens": (TOKENS, CONFIGURATION + DECOUPLED),
}
