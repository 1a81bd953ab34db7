"""What speaks against the certificate that a host shows in the place of a plain key. No I/O.

Format: OpenSSH's PROTOCOL.certkeys. We are stricter than ssh(1): a certificate for any name, with
a pattern of names or with an option that we do not know is none.
"""

import base64
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

# The third way, ssh-rsa, uses SHA-1.
_WAYS_OF_RSA = (b"\0\0\0\x0crsa-sha2-256", b"\0\0\0\x0crsa-sha2-512")
_SHORTEST_RSA = 2048


def find_certificate_error(
    blob: bytes, *, authority: str, names: Collection[str], now: float
) -> str:
    """Return why a certificate does not prove that this is the host; "" if it does.

    blob: as the host shows it. authority: the public key of the CA that must have signed it.
    names: what the host may be called in it. now: seconds since 1970.
    """
    kind = blob[4 : 4 + int.from_bytes(blob[:4])]
    try:
        read = load_ssh_public_identity(kind + b" " + base64.b64encode(blob))
        if not isinstance(read, SSHCertificate):
            return "shows a plain key, and no certificate of its CA's"
        return next(_list_certificate_errors(read, blob, authority, names, now), "")
    except (ValueError, UnsupportedAlgorithm):  # some parts are read only when they are asked for
        return "shows a certificate that is broken"


def _list_certificate_errors(
    certificate: SSHCertificate, blob: bytes, authority: str, names: Collection[str], now: float
) -> Iterator[str]:
    signer = certificate.signature_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    if signer.decode() != authority:
        yield "shows a certificate of another CA"
    if not _is_signature_valid(certificate, blob):
        yield "shows a certificate whose signature is not good"
    if certificate.type != SSHCertificateType.HOST:
        yield "shows a certificate that is meant for people, and not for hosts"
    if now < certificate.valid_after:
        yield "shows a certificate that is not valid yet: are the clocks right?"
    if now >= certificate.valid_before:
        yield "shows a certificate that has expired: have its CA sign a new one"
    said = [name.decode("ascii", "backslashreplace") for name in certificate.valid_principals]
    if not set(names) & set(said):
        yield (
            f"shows a certificate for {', '.join(said)[:200] or 'any host'}, "
            f"and not for {' or '.join(names)}"
        )
    if certificate.critical_options:
        yield "shows a certificate with conditions that we do not know"


def _is_signature_valid(certificate: SSHCertificate, blob: bytes) -> bool:
    signer = certificate.signature_key()
    if isinstance(signer, RSAPublicKey):
        # The signature stands last, with its way before it.
        size = (signer.key_size + 7) // 8
        if signer.key_size < _SHORTEST_RSA or not blob[: -(size + 4)].endswith(_WAYS_OF_RSA):
            return False
    try:
        certificate.verify_cert_signature()
    except InvalidSignature:
        return False
    return True
