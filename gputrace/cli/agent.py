"""``gputrace agent``: publishes the devices of a node, whether or not anything uses them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputrace.cli.stopping import StopSignal

if TYPE_CHECKING:
    import argparse

    from gputrace.hardware import Hardware

FAILED = 1
#: The driver may be slow to answer the first time, s.
_FIRST_LOOK_S = 3.0


def add_parser(subparsers: Any) -> None:
    """Describe the command to ``argparse``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "agent",
        help="publish this node's GPUs, so that those which nothing uses are seen too",
        description="Reads the driver about once a second and publishes what every GPU of this node costs, "
        "draws and idles, in the place of the programs on it, until it is stopped. Needs no CUDA. "
        "Where the programs run in containers, they and the agent must share the folder GPUTRACE_NODE_DIR.",
    )
    parser.add_argument(
        "--endpoint", metavar="URL", help="OTLP/HTTP receiver; by default as OTEL_EXPORTER_OTLP_ENDPOINT says"
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="write OTLP/JSON files here, which grow for as long as it runs",
    )
    parser.add_argument(
        "--prices", type=Path, metavar="FILE", help="price book; by default as GPUTRACE_PRICES says"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Publish until a signal says to stop.

    Returns:
        The exit status.
    """
    from gputrace import faults, lifecycle, settings
    from gputrace.prices_rows import PriceBookError

    stopped = StopSignal()
    try:
        hardware = lifecycle.start_agent(
            endpoint=arguments.endpoint, data_dir=arguments.data, prices=arguments.prices
        )
    except (settings.SettingError, PriceBookError) as error:
        print(f"gputrace agent: {error}", file=sys.stderr)
        return FAILED
    if hardware is None:
        print("gputrace agent: OTEL_SDK_DISABLED is set: nothing is published", file=sys.stderr)
        return FAILED
    with faults.contained("say what the agent publishes"):
        _introduce(hardware, stopped)
    stopped.wait()
    lifecycle.shutdown()
    return 0


def _introduce(hardware: Hardware, stopped: StopSignal) -> None:
    stopped.wait(_FIRST_LOOK_S)
    state = hardware.sampler.state()
    if state.trouble is not None:
        print(
            f"gputrace agent: the driver is not read: {state.trouble.reason}; {state.trouble.remedy}. "
            "It is asked again from time to time.",
            file=sys.stderr,
        )
    if hardware.node.why_alone is not None:
        print(
            f"gputrace agent: programs on this node are not seen: {hardware.node.why_alone}", file=sys.stderr
        )
    elif not hardware.node.is_publisher:
        print(
            f"gputrace agent: another one publishes this node ({hardware.node.publisher_id()}); "
            "this one takes over when that ends",
            file=sys.stderr,
        )
    devices = hardware.sampler.devices()
    named = ", ".join(f"{device.name or 'GPU'} {device.uuid}" for device in devices) or "no device"
    print(f"gputrace agent: {hardware.node.instance_id} reads {named}", flush=True)
