"""A host with two logins, and with the scripts and sudoers lines that Keyturn prints."""

import shlex
from collections.abc import Mapping, Sequence

from bot.hosts import sudo_rules
from connectors.inventory import Host
from tests.playground.keys import KeyPair, make_key
from tests.playground.sshd import Sshd

CHANGER, READER = "kt-change", "kt-read"

# What it changes is seen by this sshd and its children only. The keys are where the logins, who
# read them themselves, may look.
_BEGIN = """\
set -e
cd {directory}
(cat /etc/passwd; printf '%s:*:%s:65534::/:/bin/sh\\n' {logins}) >passwd
mount --bind passwd /etc/passwd
printf 'root ALL=(ALL) ALL\\n@includedir /etc/sudoers.d\\n' >sudoers
chmod 440 sudoers
mount --bind sudoers /etc/sudoers
mount -t tmpfs -o mode=755 none /etc/sudoers.d
mount -t tmpfs -o mode=755 none /usr/local/lib
mkdir /usr/local/lib/keys
for login in {names}; do cp "$login.pub" "/usr/local/lib/keys/$login"; done
sh ./install
exec "$@"
"""


class TwoLogins(Sshd):
    """An OpenSSH server in a mount namespace with two logins that are not root.

    people: further logins, of people.
    root_key: with which root may log in, until `refuse_root`.
    """

    def __init__(
        self,
        *,
        tags: tuple[str, ...],
        settings: Mapping[str, str],
        name: str = "web1",
        address: str = "127.0.0.1",
        people: Sequence[str] = (),
        root_key: KeyPair | None = None,
    ) -> None:
        super().__init__(address=address, client=root_key)
        self._names = (CHANGER, READER, *people)
        self._root_keys = self.directory / "keys_of_root"
        self._options = (
            f"AllowUsers {' '.join(self._names)} {'root' if root_key else ''}",
            f"AuthorizedKeysFile /usr/local/lib/keys/%u {self.directory}/keys_of_%u",
        )
        if root_key is not None:
            self._root_keys.write_text(f"{root_key.public}\n")
        self.name, self.people = name, tuple(people)
        self._tags, self._settings = tags, settings
        self.keys = {name: make_key() for name in self._names}
        for login, pair in self.keys.items():
            pair.write(self.directory / login)
            (self.directory / f"{login}.pub").write_text(f"{pair.public}\n")

    def refuse_root(self) -> None:
        """Let root log in no more."""
        self._root_keys.unlink()

    def host(self, **changed: object) -> Host:
        """Return this host as the inventory has it."""
        entry = self.inventory_entry(area="web", tags=self._tags, settings=self._settings)
        logins = {
            "user": CHANGER,
            "key": str(self.directory / CHANGER),
            "reader": {"user": READER, "key": str(self.directory / READER)},
            "scripts": True,
        }
        return Host.model_validate({**entry, **logins, "name": self.name, **changed})

    def logins_of(self, user: str) -> int:
        return self.log().count(f"Accepted publickey for {user} ")

    def _configure(self) -> list[str]:
        command = super()._configure()
        (self.directory / "install").write_text(self._format_install_program())
        begin = _BEGIN.format(
            directory=shlex.quote(str(self.directory)),
            names=" ".join(self._names),
            logins=" ".join(f"{name} {64001 + n}" for n, name in enumerate(self._names)),
        )
        return ["unshare", "-m", "sh", "-c", begin, "begin", *command]

    def _format_install_program(self) -> str:
        return sudo_rules.format_install_program(self.host())
