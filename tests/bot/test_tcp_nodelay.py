"""TCP_NODELAY is set on every accepted connection."""

import socket

from bot import app


def test_listener_sets_tcp_nodelay_on_accepted_connections() -> None:
    with app.open_listener("127.0.0.1", 0) as listener:
        address = listener.getsockname()
        with socket.create_connection(address), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_plain_listener_leaves_tcp_nodelay_off() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with socket.create_connection(address), listener.accept()[0] as accepted:
            assert not accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
