"""A host with two logins that checks itself who signed each change."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bot.hosts.host_files import Signer, format_enrolment, format_floor, format_signers
from connectors.inventory import Host
from tests.playground.keys import KeyPair
from tests.playground.two_logins import TwoLogins


class EnrolledLogins(TwoLogins):
    """An OpenSSH server whose changing login may run nothing but the program that checks.

    Its files in /etc and /var/lib are in the directory of the server.
    """

    def __init__(
        self,
        *,
        tags: tuple[str, ...],
        settings: Mapping[str, str],
        signers: Iterable[Signer],
        owners: Iterable[str],
        page: str = "",
        name: str = "web1",
        address: str = "127.0.0.1",
        people: Sequence[str] = (),
        root_key: KeyPair | None = None,
    ) -> None:
        super().__init__(
            tags=tags,
            settings=settings,
            name=name,
            address=address,
            people=people,
            root_key=root_key,
        )
        self.signers, self.owners, self.page = [*signers], [*owners], page

    @property
    def record(self) -> Path:
        """What ran there, in a directory of root."""
        return self.directory / "var/lib/keyturn-signed"

    def host(self, **changed: object) -> Host:
        return super().host(**{"signed": True, "offline_logins": self.people, **changed})

    def _format_install_program(self) -> str:
        host = self.host()
        floor = format_floor(host.name, {"owners": self.owners}, self.page)
        text = format_enrolment(host, format_signers(self.signers), floor)
        (self.directory / "ssh_host_own_key.pub").write_text(f"{self.host_key}\n")
        places = {
            '"$root"/etc/ssh/': f"{self.directory}/",
            "/etc/keyturn": f"{self.directory}/etc/keyturn",
            "/var/lib/keyturn-signed": str(self.record),
        }
        for path, own in places.items():
            assert path in text
            text = text.replace(path, own)
        return text
