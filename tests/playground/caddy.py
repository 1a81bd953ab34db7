"""A real Caddy with one site, whose certificate is given and whose files are in its directory."""

import socket
from pathlib import Path

from tests.playground.daemon import Daemon, find_program

CADDY = "/usr/bin/caddy"
# It listens nowhere else, and asks no authority for a certificate.
_CONFIGURATION = """{{
    admin off
    auto_https disable_redirects
    storage file_system {directory}
}}
{site}"""


class Caddy(Daemon):
    """site: a site of a Caddyfile, which listens at this port of 127.0.0.1."""

    def __init__(self, site: str, *, port: int) -> None:
        self._caddy = find_program(CADDY, package="caddy")
        super().__init__()
        self._site, self._port = site, port

    @property
    def configuration(self) -> Path:
        return self.directory / "Caddyfile"

    def _choose_ports(self) -> None:
        """The site names its port."""

    def _configure(self) -> list[str]:
        text = _CONFIGURATION.format(directory=self.directory, site=self._site)
        self.configuration.write_text(text)
        # Where it saves its configuration by itself; without one, in the directory of the tests.
        begin = ["/usr/bin/env", f"XDG_CONFIG_HOME={self.directory}", self._caddy, "run"]
        return [*begin, "--config", str(self.configuration), "--adapter", "caddyfile"]

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True
