"""Serves an ASGI app on a free loopback port for as long as a test needs it."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp


@asynccontextmanager
async def serve(app: ASGIApp) -> AsyncGenerator[str]:
    """Yield the URL that the app answers at."""
    config = uvicorn.Config(
        app, log_level="error", lifespan="off", timeout_graceful_shutdown=1, ws="wsproto"
    )
    server = uvicorn.Server(config)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await wait_until(lambda: server.started or task.done())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()


async def wait_until(claim: Callable[[], object], *, within: float = 30.0) -> None:
    """Wait until a claim is true, or fail."""
    async with asyncio.timeout(within):
        while not claim():
            await asyncio.sleep(0.01)
