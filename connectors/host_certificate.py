"""Verification of SSH host certificates. No I/O.

Format: OpenSSH's PROTOCOL.certkeys. Keyturn is stricter than ssh(1): it refuses a certificate for
any name, with a pattern of names, or with an unknown option.
"""

import base64
import hashlib
from collections.abc import Collection, Iterator

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    SSHCertificate,
    SSHCertificateType,
    load_ssh_public_identity,
)

# Without ssh-rsa, which uses SHA-1.
_RSA_ALGORITHMS = (b"\0\0\0\x0crsa-sha2-256", b"\0\0\0\x0crsa-sha2-512")
_SHORTEST_RSA = 2048


def find_certificate_error(
    blob: bytes,
    *,
    authority: str,
    names: Collection[str],
    now: float,
    revoked: Collection[bytes] = (),
) -> str:
    """Return why a certificate is not valid for this host; "" if it is.

    Args:
        blob: as the host shows it.
        authority: the public key of the CA that must have signed it.
        names: the host's name and address, one of which it must contain.
        now: seconds since 1970.
        revoked: the SHA-256 of keys that are not accepted, even with a valid signature.
    """
    kind = blob[4 : 4 + int.from_bytes(blob[:4])]
    try:
        read = load_ssh_public_identity(kind + b" " + base64.b64encode(blob))
        if not isinstance(read, SSHCertificate):
            return "shows a plain key instead of a certificate of its CA"
        if _hash_key(read) in revoked:
            return "shows a certificate of a key that the inventory has in revoked_keys"
        return next(_list_certificate_errors(read, blob, authority, names, now), "")
    except (ValueError, UnsupportedAlgorithm):  # some fields are parsed only on access
        return "shows a certificate that is broken"


def _list_certificate_errors(
    certificate: SSHCertificate, blob: bytes, authority: str, names: Collection[str], now: float
) -> Iterator[str]:
    signer = certificate.signature_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    if signer.decode() != authority:
        yield "shows a certificate of another CA"
    if not _is_signature_valid(certificate, blob):
        yield "shows a certificate with an invalid signature"
    if certificate.type != SSHCertificateType.HOST:
        yield "shows a certificate for users, not for hosts"
    if now < certificate.valid_after:
        yield "shows a certificate that is not valid yet: check the clocks"
    if now >= certificate.valid_before:
        yield "shows a certificate that has expired: let its CA sign a new one"
    principals = [
        name.decode("ascii", "backslashreplace") for name in certificate.valid_principals
    ]
    if not set(names) & set(principals):
        yield (
            f"shows a certificate for {', '.join(principals)[:200] or 'any host'}, "
            f"not for {' or '.join(names)}"
        )
    if certificate.critical_options:
        yield "shows a certificate with unknown critical options"


def _hash_key(certificate: SSHCertificate) -> bytes:
    """Return the SHA-256 of the key that a certificate is for, as OpenSSH computes it."""
    line = certificate.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return hashlib.sha256(base64.b64decode(line.split()[1])).digest()


def _is_signature_valid(certificate: SSHCertificate, blob: bytes) -> bool:
    signer = certificate.signature_key()
    if isinstance(signer, RSAPublicKey):
        # The signature comes last, after its algorithm.
        size = (signer.key_size + 7) // 8
        if signer.key_size < _SHORTEST_RSA or not blob[: -(size + 4)].endswith(_RSA_ALGORITHMS):
            return False
    try:
        certificate.verify_cert_signature()
    except InvalidSignature:
        return False
    return True
