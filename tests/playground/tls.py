"""TLS certificates for test servers, signed by a private CA."""

import datetime
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certified:
    """authority: the file that a client must trust. chain: the server's key and certificate."""

    authority: Path
    chain: Path


def create_certificate(directory: Path, *, names: tuple[str, ...]) -> Certified:
    """Make an authority and what a server needs that answers to these names or addresses."""
    root, root_key = _certificate("Test authority", None, None, ())
    leaf, leaf_key = _certificate("Test server", root, root_key, names)
    pem = serialization.Encoding.PEM
    made = Certified(directory / "authority.pem", directory / "server.pem")
    made.authority.write_bytes(root.public_bytes(pem))
    private = leaf_key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    made.chain.write_bytes(private + leaf.public_bytes(pem))
    return made


def _certificate(
    subject: str,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey | None,
    names: tuple[str, ...],
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    now = datetime.datetime.now(datetime.UTC)
    signer = issuer_key or key
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer.subject if issuer else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if names:
        built = built.add_extension(
            x509.SubjectAlternativeName([_name(name) for name in names]), critical=False
        )
    return built.sign(signer, hashes.SHA256()), key


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)
