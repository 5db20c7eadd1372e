"""Running the HTTP server until it is told to stop."""

import asyncio
import contextlib
import gc
import signal
import socket
from collections.abc import Callable, Generator

import uvicorn

from whence.app import App
from whence.errors import SetupError
from whence.gateway.http import build
from whence.gateway.telemetry import grpc_server

GRACEFUL_SHUTDOWN_SECONDS = 10


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn raises them again when it has ended, which would skip our own clean-up."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def serve(app: App, announce: Callable[[str, int | None], None]) -> None:
    """Serves until SIGTERM or SIGINT; `announce` gets the address, and the port of gRPC, when it answers."""
    listener = _listen(app.settings.host, app.settings.port)
    config = uvicorn.Config(
        build(app),  # pyright: ignore[reportArgumentType]
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        # Nothing here goes by the caller's address, so no header can lie about it.
        proxy_headers=False,
        timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_SECONDS,
    )
    server = _Server(config)

    def stop() -> None:
        app.stopping.set()
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    async with grpc_server(app) as grpc_port:
        await _run(server, listener, announce, grpc_port)


async def _run(
    server: uvicorn.Server, listener: socket.socket, announce: Callable[[str, int | None], None], grpc_port: int | None
) -> None:
    running = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not running.done():  # noqa: ASYNC110 (uvicorn has no event to wait for)
        await asyncio.sleep(0.01)
    if server.started:
        # What is here by now stays: looking through it for garbage takes long enough to be felt by whoever waits.
        gc.collect()
        gc.freeze()
        host, port = listener.getsockname()[:2]
        announce(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}", grpc_port)
    await running


def _listen(host: str, port: int) -> socket.socket:
    listener = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except (OSError, UnicodeError) as error:
        if listener is not None:
            listener.close()
        why = error.strerror if isinstance(error, OSError) else "not a host name"
        raise SetupError(f"cannot serve on {host} port {port}: {why}; choose another with --host or --port") from error
    return listener
