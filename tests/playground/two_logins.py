"""A host with two logins, and with the scripts and sudoers lines that Keyturn prints."""

import shlex
from collections.abc import Mapping

from bot.hosts import sudo_rules
from connectors.inventory import Host
from tests.playground.keys import make_key
from tests.playground.sshd import Sshd

CHANGER, READER = "kt-change", "kt-read"

# What it changes is seen by this sshd and its children only. The keys are where the logins, who
# read them themselves, may look.
_BEGIN = """\
set -e
cd {directory}
(cat /etc/passwd; printf '%s:*:%s:65534::/:/bin/sh\\n' {changer} 64001 {reader} 64002) >passwd
mount --bind passwd /etc/passwd
printf 'root ALL=(ALL) ALL\\n@includedir /etc/sudoers.d\\n' >sudoers
chmod 440 sudoers
mount --bind sudoers /etc/sudoers
mount -t tmpfs -o mode=755 none /etc/sudoers.d
mount -t tmpfs -o mode=755 none /usr/local/lib
mkdir /usr/local/lib/keys
cp {changer}.pub /usr/local/lib/keys/{changer}
cp {reader}.pub /usr/local/lib/keys/{reader}
sh ./install
exec "$@"
"""


class TwoLogins(Sshd):
    """An OpenSSH server in a mount namespace with two logins that are not root."""

    def __init__(self, *, tags: tuple[str, ...], settings: Mapping[str, str]) -> None:
        allowed = f"AllowUsers {CHANGER} {READER}"
        keys = "AuthorizedKeysFile /usr/local/lib/keys/%u"
        super().__init__(options=(allowed, keys))
        self._tags, self._settings = tags, settings
        self.keys = {name: make_key() for name in (CHANGER, READER)}
        for name, pair in self.keys.items():
            pair.write(self.directory / name)
            (self.directory / f"{name}.pub").write_text(f"{pair.public}\n")

    def host(self, **changed: object) -> Host:
        """Return this host as the inventory has it."""
        entry = self.inventory_entry(area="web", tags=self._tags, settings=self._settings)
        logins = {
            "user": CHANGER,
            "key": str(self.directory / CHANGER),
            "reader": {"user": READER, "key": str(self.directory / READER)},
            "scripts": True,
        }
        return Host.model_validate({**entry, **logins, "name": "web1", **changed})

    def logins_of(self, user: str) -> int:
        return self.log().count(f"Accepted publickey for {user} ")

    def _configure(self) -> list[str]:
        command = super()._configure()
        (self.directory / "install").write_text(self._format_install_program())
        begin = _BEGIN.format(
            directory=shlex.quote(str(self.directory)), changer=CHANGER, reader=READER
        )
        return ["unshare", "-m", "sh", "-c", begin, "begin", *command]

    def _format_install_program(self) -> str:
        return sudo_rules.format_install_program(self.host())
