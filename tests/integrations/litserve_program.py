"""A LitServe server that predicts twelve at once; run with a port and a folder for what it records."""

from __future__ import annotations

import sys
import time

import litserve

import gputrace
from gputrace.integrations import litserve as instrumentation

if __name__ == "__main__":
    port, folder = int(sys.argv[1]), sys.argv[2]
else:
    # A worker imports this anew.
    folder = sys.argv[2]


@instrumentation.instrument(model="doubler", weight=lambda decoded: decoded)
class Doubler(litserve.LitAPI):
    def setup(self, device: str) -> None:
        gputrace.configure(service_name="worker", data_dir=folder, export_interval=0.2)

    def decode_request(self, request):
        # Nothing else has come.
        assert list(request) == ["value"], request
        return request["value"]

    def predict(self, values: list[int]) -> list[int]:
        with gputrace.span("multiply"):
            time.sleep(0.02)
        return [2 * value for value in values]

    def encode_response(self, output: int) -> dict[str, int]:
        return {"doubled": output}


if __name__ == "__main__":
    api = Doubler(max_batch_size=12, batch_timeout=1.0)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    gputrace.instrument(server.app)
    server.run(
        port=port, host="127.0.0.1", generate_client_file=False, num_api_servers=1, log_level="warning"
    )
