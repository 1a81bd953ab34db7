"""A small web server to stand behind the load balancer."""

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class BackendServer:
    """Answers `GET /` with a few words and `GET /bytes/N` with N bytes, on a loopback port."""

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
        self._thread = threading.Thread(
            # The poll interval is how long `stop` may take.
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.01},
            name="origin",
            daemon=True,
        )

    @property
    def port(self) -> int:
        return self._server.server_port

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        words = self.path.split("/")
        body = b"x" * int(words[2]) if words[1] == "bytes" else b"The origin answers.\n"
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass
