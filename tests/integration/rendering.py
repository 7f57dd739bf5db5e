"""Draws a board as Grafana would: its queries asked of a real server, its panels drawn in a real browser."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from gputrace.grafana.board import Board

#: A page that is not drawn by then never is.
HANG_S = 240
_NO_OPTIONS = "no options returned"


@dataclass(frozen=True)
class Drawn:
    """A board that was drawn.

    Attributes:
        panels: What is known of each panel, by its title.
        picture: The page.
    """

    panels: dict[str, dict[str, Any]]
    picture: Path

    def without_data(self) -> set[str]:
        """Titles of the panels that say why they are empty."""
        return {title for title, panel in self.panels.items() if panel["status"] == "no data"}

    def values(self, title: str) -> dict[str, float]:
        """The last value of each series that a panel shows, by its name."""
        return {one["name"]: one["last"] for one in self.panels[title].get("values", ())}

    def number(self, title: str) -> float:
        """The one number that a panel shows."""
        (value,) = self.values(title).values()
        return value


def draw(  # noqa: PLR0913 - one argument a setting
    renderer: Path,
    server: str,
    board: Board,
    range_s: tuple[int, int],
    folder: Path,
    *,
    every_s: int = 60,
    empty: bool = False,
) -> Drawn:
    """Draw a board; an error of any panel is one of the test.

    Args:
        renderer: Its folder.
        server: URL of a Prometheus.
        board: The board.
        range_s: From when to when, Unix time.
        folder: Where the picture goes.
        every_s: How often values come.
        empty: There is nothing in the database: variables have nothing to choose from.
    """
    source, picture, told = (folder / f"{board.uid}.{kind}" for kind in ("json", "png", "told.json"))
    source.write_text(board.to_json())
    command = ["node", "render.mjs", "--dashboard", source, "--prometheus", server]
    begin, end = (f"{datetime.fromtimestamp(at_s, timezone.utc):%Y-%m-%dT%H:%MZ}" for at_s in range_s)
    command += ["--from", begin, "--to", end]
    command += ["--scrape-interval", f"{every_s}", "--out", picture, "--json", told]
    done = subprocess.run(
        [str(word) for word in command],
        cwd=renderer,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0 or (empty and done.returncode == 1), done.stdout + done.stderr
    said = json.loads(told.read_text())
    assert not said["jsErrors"]
    assert [one for one in said["problems"] if not (empty and _NO_OPTIONS in str(one))] == []
    panels = {panel["title"]: panel for panel in said["panels"] if panel["type"] != "row"}
    for panel in panels.values():
        assert not panel["problems"], panel
    return Drawn(panels, picture)
