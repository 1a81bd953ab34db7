"""A key of ssh-keygen, as people have it."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from bot.signing.sshsig import PLAN_NAMESPACE


@dataclass(frozen=True)
class SshKey:
    """The file of a private key."""

    file: Path

    @classmethod
    def create(cls, directory: Path, kind: str = "ed25519", name: str = "key") -> "SshKey":
        """kind: the type of the key, for ecdsa with its bits."""
        form, _, bits = kind.partition("-")
        more = ["-b", bits] if bits else []
        file = directory / name
        command = ["ssh-keygen", "-q", "-N", "", "-C", "", "-t", form, *more, "-f", file]
        subprocess.run(command, check=True)
        return cls(file)

    @property
    def line(self) -> str:
        return self.file.with_name(f"{self.file.name}.pub").read_text().strip()

    @property
    def fingerprint(self) -> str:
        command = ["ssh-keygen", "-l", "-f", self.file]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[
            1
        ]

    def sign(self, message: bytes, namespace: str = PLAN_NAMESPACE) -> str:
        command = ["ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", self.file]
        done = subprocess.run(command, input=message, check=True, capture_output=True)
        return done.stdout.decode()
