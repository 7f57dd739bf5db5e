"""Model servers as a table each below the spend, with the weights that split their steps."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from gputrace.analysis import formats

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputrace.analysis.model_servers import ModelServer, Spender, Weight

_PHASES = ("charged\ns", "share", "±", "prefill", "decode")
_TOKENS = ("prompt\ntokens", "decoded", "cached", "saved\ns")
_UNITS = {
    "fixed": "a step",
    "prefill": "a prompt token",
    "decode": "a token beyond",
    "context": "a token of context",
    "pairs": "1,000 pairs",
}


def server_heading(server: ModelServer) -> Text:
    """Return what a model server did, in a sentence."""
    text = Text(f"Model server {server.model or formats.ABSENT}", style="bold")
    said = [f"{server.steps:,} steps" if server.steps else "no step that is counted"]
    if server.sequences is not None:
        said.append(f"of {server.sequences:,.1f} sequences")
    text.append(f" ({server.type or '?'}): {' '.join(said)}", style="not bold")
    if server.tokens_per_s is not None:
        text.append(f", {server.tokens_per_s:,.0f} tokens a device second", style="not bold")
    if server.tokens_per_currency is not None:
        text.append(f", {server.tokens_per_currency:,.0f} per {server.currency}", style="not bold")
    return text


def server_table(server: ModelServer) -> Table:
    """Return what each feature had of a server's steps."""
    recomputed = bool(server.tokens.get("recomputed"))
    other = bool(server.other_s)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("feature" if not server.tenants else "feature\n  tenant", overflow="fold")
    shown = (*_PHASES, *(("other",) if other else ()), *_TOKENS)
    for name in (*shown, *(("again", "again\ns") if recomputed else ())):
        table.add_column(name, justify="right", no_wrap=True)
    for one in _rows(server):
        # As text: a name such as "[red]" is a name, no markup.
        name = Text(one.feature) if one.tenant is None else Text(f"  {one.tenant}", style="dim")
        table.add_row(name, *_cells(one, other=other), *(_again(one) if recomputed else ()))
    return table


def _rows(server: ModelServer) -> Iterator[Spender]:
    for feature in server.features:
        yield feature
        yield from (one for one in server.tenants if one.feature == feature.feature)


def _cells(one: Spender, *, other: bool) -> Iterator[str]:
    yield formats.seconds(one.charged_s)
    yield formats.share(one.share)
    yield formats.ABSENT if one.share_error is None else f"{100 * one.share_error:.2g}"
    for part in (one.prefill_s, one.decode_s, *((one.other_s,) if other else ())):
        yield formats.share(part / one.charged_s if one.charged_s else None)
    for kind in ("prefill", "decode", "cached"):
        yield f"{one.tokens.get(kind, 0):,}"
    yield formats.seconds(one.cached_s)


def _again(one: Spender) -> tuple[str, str]:
    return f"{one.tokens.get('recomputed', 0):,}", formats.seconds(one.recomputed_s)


def weight_lines(server: ModelServer) -> Iterator[Text]:
    """Yield what the steps were split with, what was learnt of each regime, and what was not split."""
    for (device, regime), found in groupby(server.weights, key=lambda one: (one.device, one.regime)):
        weights = list(found)
        yield Text(
            f"weights, {regime} prompt tokens a step{f' on {device}' if device else ''} "
            f"({weights[0].steps or 0:,} steps, off by {formats.share(weights[0].residual)}): "
            + ", ".join(_weight(one) for one in weights if one.value_s),
            style="dim",
        )
    if server.other_s:
        yield Text(
            f"{formats.seconds(server.other_s)} s were charged for steps whose work was not told or could "
            "not be used, or that served nobody: they are “other”, and in no count of steps or tokens.",
            style="dim",
        )
    if server.constants_share is not None and server.constants_share > 0:
        yield Text(
            f"{formats.share(server.constants_share)} of its time was split by documented constants, "
            "not by learnt weights.",
            style="dim",
        )


def _weight(one: Weight) -> str:
    error = "" if one.error_s is None else f" ± {formats.tiny(one.error_s)}"
    return f"{formats.tiny(one.value_s)}{error} {_UNITS.get(one.coefficient, one.coefficient)}"
