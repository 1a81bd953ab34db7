"""A CA that signs the keys of hosts, and a real OpenSSH server that shows what it signed."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.playground.daemon import find_program
from tests.playground.keys import KeyType, make_key
from tests.playground.sshd import Sshd

_SSH_KEYGEN = "/usr/bin/ssh-keygen"


class Authority:
    """Signs by the real ssh-keygen. public: what an inventory gives as `host_ca`."""

    def __init__(self, directory: Path, kind: KeyType = "ed25519") -> None:
        pair = make_key(kind)
        self.public = pair.public
        self._key = pair.write(directory / f"ca-{kind}")
        self._keygen = find_program(_SSH_KEYGEN, package="openssh-client")

    def sign(
        self,
        key: str,
        into: Path,
        *,
        principals: str = "web1",
        validity: str = "-1h:+1h",
        options: Iterable[str] = ("-h",),
    ) -> Path:
        """Write the certificate of a public key beside *into*; return its file.

        options: `-h` makes it one of a host.
        """
        into.write_text(f"{key}\n")
        names = ("-n", principals) if principals else ()
        words = (
            *(self._keygen, "-q", "-s", str(self._key), "-I", "test", "-V", validity),
            *(*names, *options, str(into)),
        )
        subprocess.run(words, check=True, capture_output=True)
        return into.with_name(f"{into.stem}-cert.pub")


class CertifiedSshd(Sshd):
    """An OpenSSH server that shows certificates once `certificates` holds their files."""

    def __init__(self, *, host_key_types: tuple[KeyType, ...] = ("ed25519",)) -> None:
        super().__init__(host_key_types=host_key_types)
        self.certificates: tuple[Path, ...] = ()

    def _lines(self) -> list[str]:
        return [*super()._lines(), *(f"HostCertificate {file}" for file in self.certificates)]
