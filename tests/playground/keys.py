"""SSH key pairs, generated when needed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

KeyType = Literal["ed25519", "ecdsa", "rsa"]


@dataclass(frozen=True)
class KeyPair:
    """A private key as OpenSSH keeps it in a file, and its public line `ssh-ed25519 AAAA…`."""

    private: bytes
    public: str

    def write(self, path: Path) -> Path:
        """Put the private key into a file that only its owner may read."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_bytes(self.private)
        return path


def make_key(kind: KeyType = "ed25519") -> KeyPair:
    key = _make(kind)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return KeyPair(private, public.decode())


def _make(
    kind: KeyType,
) -> ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    match kind:
        case "ed25519":
            return ed25519.Ed25519PrivateKey.generate()
        case "ecdsa":
            return ec.generate_private_key(ec.SECP256R1())
        case "rsa":
            return rsa.generate_private_key(public_exponent=65537, key_size=2048)
