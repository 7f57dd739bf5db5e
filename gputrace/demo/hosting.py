"""A web server on loopback that runs beside the main thread."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import uvicorn

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

Application = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application."""

START_S = 20.0
STOP_S = 5.0


class Hosting:
    """Serves an application from a thread, on a free port, for as long as the block lasts.

    The main thread stays the driver's, so that Ctrl-C reaches the driver and not the
    server.
    """

    def __init__(self, app: Application) -> None:
        """Prepare; nothing listens yet."""
        # One implementation of each kind by name: uvicorn would take what it finds installed.
        config = uvicorn.Config(app, loop="asyncio", http="h11", log_level="warning", access_log=False)
        self._server = uvicorn.Server(config)
        # The protocol must be named: asyncio sets TCP_NODELAY on sockets that say they are
        # TCP only, and without it each answer waits 40 ms for a delayed acknowledgement.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._thread = threading.Thread(target=self._serve, name="demo-service", daemon=True)

    @property
    def url(self) -> str:
        """Where it answers."""
        host, port = self._socket.getsockname()
        return f"http://{host}:{port}"

    def __enter__(self) -> Self:
        """Listen, and wait until it answers."""
        self._socket.bind(("127.0.0.1", 0))
        self._thread.start()
        deadline = time.monotonic() + START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self._server.should_exit = True
                self._socket.close()
                message = "the demo's web server did not start"
                raise RuntimeError(message)
            time.sleep(0.01)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finish the requests under way and stop."""
        self._server.should_exit = True
        self._thread.join(STOP_S)
        self._socket.close()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])
