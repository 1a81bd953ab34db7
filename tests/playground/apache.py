"""A real Apache on a free loopback port, with its configuration and its logs in its directory."""

import os
import urllib.error
import urllib.request

from tests.playground.daemon import Daemon, find_free_port, find_program

APACHE = "/usr/sbin/apache2"
_MODULES = "/usr/lib/apache2/modules"
_CONFIGURATION = """
ServerRoot {0}
ServerName localhost
PidFile {0}/apache.pid
Listen 127.0.0.1:{1}
LoadModule mpm_event_module {2}/mod_mpm_event.so
LoadModule authz_core_module {2}/mod_authz_core.so
LoadModule setenvif_module {2}/mod_setenvif.so
ErrorLog {0}/error.log
LogFormat "%h %l %u %t \\"%r\\" %>s %b \\"%{{Referer}}i\\" \\"%{{User-Agent}}i\\"" combined
CustomLog {0}/access.log combined
StartServers 1
DocumentRoot {0}/www
<Directory {0}/www>
    Require all granted
</Directory>
IncludeOptional {0}/conf.d/*.conf
<VirtualHost *:{1}>
    ServerName shop.example
</VirtualHost>
"""


class Apache(Daemon):
    """What is in `conf.d` is read too, as on any host. control: stands where apachectl would."""

    def __init__(self) -> None:
        self._apache = find_program(APACHE, package="apache2")
        super().__init__()
        self.port = 0
        # Its workers are somebody else, who comes here only if he may pass.
        self.directory.parent.chmod(0o711)
        self.directory.chmod(0o711)
        self.conf_d = self.directory / "conf.d"
        self.conf_d.mkdir()
        (self.directory / "www").mkdir()
        (self.directory / "www" / "index.html").write_text("hello\n")
        self.configuration = self.directory / "apache.conf"
        self.control = self.directory / "apachectl"
        self.control.write_text(f'#!/bin/sh\nexec {self._apache} -f {self.configuration} "$@"\n')
        self.control.chmod(0o755)

    def get(self, agent: str) -> int:
        """Return the status of an answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/index.html", headers={"User-Agent": agent}
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
        user = "User nobody\nGroup nogroup\n" if os.geteuid() == 0 else ""
        text = _CONFIGURATION.format(self.directory, self.port, _MODULES)
        self.configuration.write_text(user + text)
        return [str(self.control), "-D", "FOREGROUND"]

    def _answers(self) -> bool:
        try:
            return self.get("playground") == 200
        except OSError:
            return False
