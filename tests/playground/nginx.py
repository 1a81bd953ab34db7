"""A real nginx on a free loopback port, with its configuration and its logs in its directory."""

import os
import urllib.error
import urllib.request

from tests.playground.daemon import Daemon, find_free_port, find_program

NGINX = "/usr/sbin/nginx"
_CONFIGURATION = """
daemon off;
pid {0}/nginx.pid;
error_log {0}/error.log warn;
events {{ worker_connections 64; }}
http {{
    access_log {0}/access.log combined;
    client_body_temp_path {0}/body;
    proxy_temp_path {0}/proxy;
    fastcgi_temp_path {0}/fastcgi;
    uwsgi_temp_path {0}/uwsgi;
    scgi_temp_path {0}/scgi;
    include {0}/conf.d/*.conf;
    server {{
        listen 127.0.0.1:{1};
        location / {{ return 200 "hello\\n"; }}
        {2}
    }}
}}
"""


class Nginx(Daemon):
    """server: more lines of its server. What is in `conf.d` is read too, as on any host."""

    def __init__(self, server: str = "") -> None:
        self._nginx = find_program(NGINX, package="nginx-light")
        super().__init__()
        self.port = 0
        self._server = server
        self.conf_d = self.directory / "conf.d"
        self.conf_d.mkdir()
        self.configuration = self.directory / "nginx.conf"

    def get(self, path: str, agent: str) -> int:
        """Return the status of an answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", headers={"User-Agent": agent}
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - the same
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            refused.close()
            return refused.code

    def _choose_ports(self) -> None:
        self.port = find_free_port("127.0.0.1")

    def _configure(self) -> list[str]:
        user = "user root;" if os.geteuid() == 0 else ""
        text = _CONFIGURATION.format(self.directory, self.port, self._server)
        self.configuration.write_text(user + text)
        return [self._nginx, "-c", str(self.configuration)]

    def _answers(self) -> bool:
        try:
            return self.get("/", "playground") == 200
        except OSError:
            return False
