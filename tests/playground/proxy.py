"""An HTTP proxy that forwards CONNECT to given ports, and refuses all others."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

_FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"


async def serve_proxy(
    ports: Mapping[str, int], on_request: Callable[[str], None]
) -> asyncio.Server:
    """Serve on a free port of 127.0.0.1 in this loop.

    ports: the port of 127.0.0.1 that each place, as CONNECT names it, leads to. on_request: called
    with the method and the place of each request.
    """

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, where = head.split()[:2]
        on_request(f"{method} {where}")
        if method != "CONNECT" or where not in ports:
            writer.write(_FORBIDDEN)
            writer.close()
            return
        there, on = await asyncio.open_connection("127.0.0.1", ports[where])
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_pass(reader, on), _pass(there, writer))

    return await asyncio.start_server(lead, "127.0.0.1", 0)


def get_port(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


async def _pass(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    try:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                to.write(data)
                await to.drain()
    finally:
        to.close()


class Proxy:
    """The proxy in a thread of its own. requests: the method and place of each request."""

    def __init__(self, ports: Mapping[str, int]) -> None:
        self.requests: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(serve_proxy(ports, self.requests.append))
        self.port = get_port(self._server)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(_end(self._server), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


async def _end(server: asyncio.Server) -> None:
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)  # the loop closes what the tasks left
