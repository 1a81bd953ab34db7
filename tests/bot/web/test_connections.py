"""Limits of HTTP connections: real ones on loopback, with short times."""

import asyncio
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import uvicorn

from bot.web.connections import (
    Connection,
    ConnectionLimits,
    ConnectionRegistry,
    RequestTimeMiddleware,
)

_HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
_BODY = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
_LARGE = 64 * 1024 * 1024


async def _app(scope: Any, receive: Any, send: Any) -> None:
    """Answer after the body; of /slow after a while that is longer than a request may take."""
    more = True
    while more:
        message = await receive()
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/slow":
        for _ in range(4):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await asyncio.sleep(0.3)
    body = bytes(_LARGE) if scope["path"] == "/large" else b"done"
    await send({"type": "http.response.body", "body": body})


@contextmanager
def _serving(**limits: Any) -> Generator[tuple[tuple[str, int], ConnectionRegistry]]:
    known: dict[str, Any] = {"total": 10, "per_address": 5, "backlog": 5}
    known |= {"request_seconds": 0.3, "unread_seconds": 0.5}
    connections = ConnectionRegistry(ConnectionLimits(**known | limits))

    class Served(Connection):
        registry = connections

    config = uvicorn.Config(
        RequestTimeMiddleware(_app),
        http=Served,
        log_config=None,
        lifespan="off",
        timeout_keep_alive=60,
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield listener.getsockname(), connections
        finally:
            server.should_exit = True
            server.force_exit = True
            thread.join(10)


def _answer(client: socket.socket) -> bytes:
    response = b""
    while not response.endswith(b"\r\n0\r\n\r\n"):
        response += client.recv(1000)
    return response


def _is_closed(client: socket.socket) -> bool:
    """Wait until the server closes it; answers on the way are read."""
    with suppress(ConnectionResetError):
        while client.recv(65536):
            pass
    return True


@pytest.mark.parametrize("sent", [b"", b"GET", _HEAD, _BODY, _BODY + b"{"])
def test_connection_with_an_unfinished_request_is_closed_at_the_limit(sent: bytes):
    with _serving() as (address, connections), socket.create_connection(address, 10) as client:
        client.sendall(sent)
        assert _is_closed(client)
        assert connections.closed_by_reason == {"no complete request in time": 1}
        assert connections.open_count == 0


def test_connection_with_a_slow_request_is_closed_at_the_limit():
    with _serving() as (address, connections), socket.create_connection(address, 0.05) as client:
        client.sendall(_BODY)
        sent = 0
        with suppress(ConnectionError):
            while sent < 90:
                client.sendall(b"x")
                sent += 1
                with suppress(TimeoutError):
                    assert client.recv(1) == b""
                    break
        assert sent < 90
        assert connections.closed_by_reason == {"no complete request in time": 1}


def test_unfinished_second_request_on_a_connection_is_closed_at_the_limit():
    with _serving() as (address, connections), socket.create_connection(address, 10) as client:
        client.sendall(_HEAD + b"\r\n")
        assert b"done" in _answer(client)
        client.sendall(b"GET / HT")
        assert _is_closed(client)
        assert connections.closed_by_reason == {"no complete request in time": 1}


def test_response_may_take_longer_than_the_request_limit():
    with _serving() as (address, connections), socket.create_connection(address, 10) as client:
        client.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert _answer(client).endswith(b"4\r\ndone\r\n0\r\n\r\n")
        assert not connections.closed_by_reason


def test_connection_whose_response_is_not_read_is_closed():
    with _serving() as (address, connections), socket.create_connection(address, 10) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(200):
            if connections.closed_by_reason:
                break
            threading.Event().wait(0.05)
        assert connections.closed_by_reason == {"response not read in time": 1}


def test_new_request_closes_the_longest_waiting_connection_when_all_are_taken():
    with _serving(request_seconds=60) as (address, connections):
        waiting = [socket.create_connection(address, 10) for _ in range(25)]
        with socket.create_connection(address, 10) as client:
            client.sendall(_HEAD + b"\r\n")
            assert b"done" in _answer(client)
        assert connections.open_count <= 10
        assert connections.closed_by_reason == {"longest waiting when there was no room": 16}
        for one in waiting:
            one.close()


class _Pipe(asyncio.Transport):
    """Stands where a connection from anywhere would."""

    def __init__(self, peer: str) -> None:
        super().__init__({"peername": (peer, 4711), "sockname": ("192.0.2.1", 8080)})
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True

    def get_write_buffer_size(self) -> int:
        return 0


class _Harness:
    """Clients of one server, by the addresses that they come from."""

    def __init__(self, **limits: Any) -> None:
        known: dict[str, Any] = {"total": 6, "per_address": 2, "backlog": 5}
        self.connections = ConnectionRegistry(ConnectionLimits(**known | limits))
        self._config = uvicorn.Config(_app, log_config=None, lifespan="off")
        self._state = uvicorn.Server(self._config).server_state

    def connect(self, peer: str) -> tuple[Connection, _Pipe]:
        class Served(Connection):
            registry = self.connections

        pipe = _Pipe(peer)
        one = Served(self._config, self._state, {})
        one.connection_made(pipe)
        return one, pipe


@pytest.mark.anyio
async def test_connection_limit_per_address_closes_its_own_connections_only():
    harness = _Harness()
    _, other = harness.connect("198.51.100.1")
    _, first = harness.connect("198.51.100.2")
    _, second = harness.connect("198.51.100.2")
    _, third = harness.connect("198.51.100.2")
    assert first.aborted
    assert [other.aborted, second.aborted, third.aborted] == [False] * 3


@pytest.mark.anyio
@pytest.mark.parametrize("proxy", ["198.51.100.2", "127.0.0.1"])
async def test_trusted_proxy_is_exempt_from_the_connection_limit_per_address(proxy: str):
    limits = ConnectionLimits.create_for_process(["198.51.100.0/24"])
    harness = _Harness(proxies=limits.proxies)
    pipes = [harness.connect(proxy)[1] for _ in range(6)]
    assert not any(pipe.aborted for pipe in pipes)
    harness.connect(proxy)
    assert [pipe.aborted for pipe in pipes] == [True] + [False] * 5


@pytest.mark.anyio
async def test_connection_with_a_request_in_progress_is_not_closed_for_a_new_one():
    harness, over = _Harness(), asyncio.Event()

    async def app(*_: Any) -> None:
        await over.wait()

    async def nothing(*_: Any) -> Any:
        return {}

    at_work = [harness.connect("198.51.100.2") for _ in range(2)]
    async with asyncio.TaskGroup() as group:
        for one, _ in at_work:
            group.create_task(one.handle_request(app, {}, nothing, nothing))
        await asyncio.sleep(0)
        _, refused = harness.connect("198.51.100.2")
        over.set()
    assert refused.aborted
    assert not any(pipe.aborted for _, pipe in at_work)
    assert harness.connections.closed_by_reason == {"no room": 1}


def test_connection_limits_stay_below_the_file_descriptor_limit():
    limits = ConnectionLimits.create_for_process()
    assert limits.total <= 1000
    assert limits.per_address < limits.total
