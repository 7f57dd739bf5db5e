"""One Ray cluster for all tests of a session: starting one takes seconds."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Nothing that a test does not need is started, and nothing is told to anybody.
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_DEDUP_LOGS": "0",
    "RAY_enable_metrics_collection": "0",
}
STORE_BYTES = 100 * 1024 * 1024


@contextmanager
def cluster(folder: Path) -> Iterator[Any]:
    """A cluster of one node with logical resources; `add_node` adds more to it.

    Args:
        folder: Where workers run: not where packages lie that are installed in another layout.
    """
    before = {name: os.environ.get(name) for name in SETTINGS}
    here = os.getcwd()  # noqa: PTH109 - chdir has no other inverse
    os.environ.update(SETTINGS)
    os.chdir(folder)
    try:
        from ray.cluster_utils import Cluster

        made = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 8,
                "num_gpus": 2,
                "resources": {"head": 100},
                "include_dashboard": False,
                "object_store_memory": STORE_BYTES,
            },
        )
        try:
            yield made
        finally:
            made.shutdown()
    finally:
        os.chdir(here)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
