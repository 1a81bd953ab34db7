"""Signatures as `ssh-keygen -Y sign` makes them, with keys in files or on security keys. Pure.

The formats are those of PROTOCOL.sshsig and PROTOCOL.u2f in the source of OpenSSH. The package
`cryptography` verifies: this module takes the texts apart, and puts together what was signed.
"""

import base64
import binascii
import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

PLAN_NAMESPACE = "keyturn-plan"

_MAGIC = b"SSHSIG"
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
# A signature of WebAuthn holds what the browser signed; all others are shorter.
MAX_LENGTH = 8192
_ED25519 = "ssh-ed25519"
_SK_ED25519 = "sk-ssh-ed25519@openssh.com"
_SK_ECDSA = "sk-ecdsa-sha2-nistp256@openssh.com"
_WEBAUTHN = "webauthn-sk-ecdsa-sha2-nistp256@openssh.com"
_CURVES: Mapping[str, tuple[ec.EllipticCurve, hashes.HashAlgorithm]] = {
    "ecdsa-sha2-nistp256": (ec.SECP256R1(), hashes.SHA256()),
    "ecdsa-sha2-nistp384": (ec.SECP384R1(), hashes.SHA384()),
    "ecdsa-sha2-nistp521": (ec.SECP521R1(), hashes.SHA512()),
    _SK_ECDSA: (ec.SECP256R1(), hashes.SHA256()),
}
_KINDS = (*_CURVES, _ED25519, _SK_ED25519)
_USER_PRESENT, _USER_VERIFIED, _HAS_EXTENSIONS = 0x01, 0x04, 0x80
_UNCOMPRESSED = 4
_HASHES = ("sha256", "sha512")


class SignatureError(Exception):
    """A key or signature is not valid. The message is the end of "the signature …"."""


@dataclass(frozen=True)
class PublicKey:
    """A public key, as OpenSSH writes it."""

    kind: str
    """Such as ssh-ed25519."""
    blob: bytes
    comment: str = field(default="", compare=False)
    """What follows the key on its line, for people."""

    @property
    def fingerprint(self) -> str:
        """`SHA256:` and unpadded base64, as `ssh-keygen -l` prints it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode()
        return f"SHA256:{digest.rstrip('=')}"

    @property
    def point(self) -> bytes:
        """The key without its kind and the site that it belongs to: what makes it this key."""
        reader = _Reader(self.blob)
        strings = 2 if self.kind in _CURVES else 1
        return [reader.take_string() for _ in range(strings + 1)][-1]

    @property
    def line(self) -> str:
        """The key as it stands in a file, without a comment."""
        return f"{self.kind} {base64.b64encode(self.blob).decode()}"


class _Reader:
    """Reads the fields of a blob. Raises SignatureError for one that is cut off."""

    def __init__(self, blob: bytes) -> None:
        self._blob, self._at = blob, 0

    def take(self, length: int) -> bytes:
        taken = self._blob[self._at : self._at + length]
        if len(taken) != length:
            raise SignatureError("is cut off")
        self._at += length
        return taken

    def take_number(self) -> int:
        return struct.unpack(">I", self.take(4))[0]

    def take_string(self) -> bytes:
        return self.take(self.take_number())

    def take_text(self) -> str:
        try:
            return self.take_string().decode("ascii")
        except UnicodeDecodeError:
            raise SignatureError("holds a name that is not ASCII") from None

    def take_integer(self) -> int:
        return int.from_bytes(self.take_string(), "big", signed=True)

    def finish(self) -> None:
        if self._at != len(self._blob):
            raise SignatureError("holds more than a signature")


def parse_public_key(line: str) -> PublicKey:
    """Return the key on a line of a `.pub` file. Raises SignatureError, also for other kinds."""
    words = line.split()
    if len(words) < 2 or words[0] not in _KINDS:
        raise SignatureError("has no key that can sign plans")
    try:
        blob = base64.b64decode(words[1], validate=True)
    except binascii.Error:
        raise SignatureError("has a key that is not base64") from None
    key = PublicKey(words[0], blob, " ".join(words[2:]))
    _ = _load_key(key)
    return key


def encode_string(content: bytes) -> bytes:
    """Return a string of the SSH protocol: its length, then its bytes."""
    return struct.pack(">I", len(content)) + content


def build_signed_blob(message: bytes, *, namespace: str, algorithm: str = "sha512") -> bytes:
    """Return what a key signs for a message."""
    digest = hashlib.new(algorithm, message).digest()
    return _MAGIC + b"".join(
        map(encode_string, (namespace.encode(), b"", algorithm.encode(), digest))
    )


def encode_signature(key: PublicKey, signature: bytes, *, namespace: str) -> str:
    """Return a signature as ssh-keygen writes it into a file."""
    head = _MAGIC + struct.pack(">I", 1)
    strings = (key.blob, namespace.encode(), b"", b"sha512", signature)
    text = base64.b64encode(head + b"".join(map(encode_string, strings))).decode()
    lines = [text[start : start + 70] for start in range(0, len(text), 70)]
    return "\n".join([_BEGIN, *lines, _END, ""])


def verify_signature(
    text: str, message: bytes, *, namespace: str, needs_verified_user: bool = False
) -> PublicKey:
    """Return the key that signed the message for this purpose.

    Signatures of security keys count only if the person touched the key.

    needs_verified_user: The device must also have asked for a fingerprint or a PIN. A key in a
        file has no device.

    Raises:
        SignatureError: The signature does not count.
    """
    reader = _Reader(_decode_armour(text))
    if reader.take(len(_MAGIC)) != _MAGIC or reader.take_number() != 1:
        raise SignatureError("is not one of ssh-keygen: make it with `ssh-keygen -Y sign`")
    key = _read_key(reader.take_string())
    purpose, reserved, algorithm = (reader.take_text() for _ in range(3))
    signature = reader.take_string()
    reader.finish()
    if purpose != namespace or reserved:
        raise SignatureError(f"is for another purpose: sign with `-n {namespace}`")
    if algorithm not in _HASHES:
        raise SignatureError(f"uses the hash {algorithm}: use sha512")
    signed = build_signed_blob(message, namespace=namespace, algorithm=algorithm)
    try:
        flags = _check_signature(key, _Reader(signature), signed)
    except InvalidSignature:
        raise SignatureError("is of another text than this plan") from None
    if needs_verified_user and not flags & _USER_VERIFIED:
        raise SignatureError(
            "was made without a fingerprint or PIN, which is required: use a passkey of a "
            "phone or computer, or a key of `ssh-keygen -t ed25519-sk -O verify-required`"
        )
    return key


def _decode_armour(text: str) -> bytes:
    if len(text) > MAX_LENGTH:
        raise SignatureError(f"is longer than {MAX_LENGTH} characters")
    whole = text.strip()
    body = whole.removeprefix(_BEGIN).removesuffix(_END)
    if whole != f"{_BEGIN}{body}{_END}" or "--" in body:
        raise SignatureError(f"does not begin with {_BEGIN} and end with {_END}")
    try:
        return base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError):
        raise SignatureError("is not base64") from None


def _read_key(blob: bytes) -> PublicKey:
    kind = _Reader(blob).take_text()
    if kind not in _KINDS:
        raise SignatureError(f"is of a key of the kind {kind[:40]}: use ed25519, ecdsa or sk")
    return PublicKey(kind, blob)


def _load_key(key: PublicKey) -> tuple[Ed25519PublicKey | ec.EllipticCurvePublicKey, str]:
    """Return the key of the library, and the application that a security key is bound to."""
    reader = _Reader(key.blob)
    if reader.take_text() != key.kind:
        raise SignatureError("has a key of another kind than it says")
    try:
        if key.kind in _CURVES:
            if f"sha2-{reader.take_text()}" not in key.kind:
                raise SignatureError("has a key of another curve than it says")
            curve, point = _CURVES[key.kind][0], reader.take_string()
            if point[:1] != bytes([_UNCOMPRESSED]):
                # OpenSSH takes no other form, and one key must not have two lines.
                raise SignatureError("has a key in another form than OpenSSH writes")
            loaded = ec.EllipticCurvePublicKey.from_encoded_point(curve, point)
        else:
            loaded = Ed25519PublicKey.from_public_bytes(reader.take_string())
    except ValueError:
        raise SignatureError("has a key that is not valid") from None
    application = reader.take_text() if key.kind.startswith("sk-") else ""
    reader.finish()
    return loaded, application


def _check_signature(key: PublicKey, reader: _Reader, signed: bytes) -> int:
    """Raise InvalidSignature, or SignatureError, unless the key signed this blob.

    Return the flags of the device; 0 for a key without one.
    """
    kind, content = reader.take_text(), reader.take_string()
    expected = {key.kind, _WEBAUTHN} if key.kind == _SK_ECDSA else {key.kind}
    if kind not in expected:
        raise SignatureError(f"is of the kind {kind[:40]}, and its key is not")
    loaded, application = _load_key(key)
    flags = 0
    if key.kind.startswith("sk-"):
        flags, signed = _rebuild_touched(reader, kind, application, signed)
    reader.finish()
    if isinstance(loaded, Ed25519PublicKey):
        loaded.verify(content, signed)
        return flags
    numbers = _Reader(content)
    r, s = numbers.take_integer(), numbers.take_integer()
    numbers.finish()
    if r <= 0 or s <= 0:
        raise InvalidSignature
    loaded.verify(encode_dss_signature(r, s), signed, ec.ECDSA(_CURVES[key.kind][1]))
    return flags


def _rebuild_touched(
    reader: _Reader, kind: str, application: str, signed: bytes
) -> tuple[int, bytes]:
    """Return the flags of a security key whose person touched it, and what it signed."""
    flags = reader.take(1)
    counter = reader.take(4)
    if not flags[0] & _USER_PRESENT:
        raise SignatureError("was made without a touch of the security key")
    extensions = b""
    if kind == _WEBAUTHN:
        origin, client, extensions = (reader.take_string() for _ in range(3))
        _check_client_data(client, origin, application, signed)
        signed = client
    if bool(extensions) != bool(flags[0] & _HAS_EXTENSIONS):
        raise SignatureError("has extensions that its flags do not name")
    head = hashlib.sha256(application.encode()).digest() + flags + counter + extensions
    return flags[0], head + hashlib.sha256(signed).digest()


def _check_client_data(client: bytes, origin: bytes, application: str, signed: bytes) -> None:
    """Raise SignatureError unless a browser was asked to sign this, by a page of its site."""
    challenge = base64.urlsafe_b64encode(signed).rstrip(b"=")
    head = b'{"type":"webauthn.get","challenge":"%b","origin":"%b"' % (challenge, origin)
    if b'"' in origin or not client.startswith((head + b"}", head + b",")):
        raise SignatureError("is of another text than this plan, or was not made for signing")
    address = urlsplit(origin.decode(errors="replace"))
    is_secure = address.scheme == "https" or address.hostname == "localhost"
    if not is_secure or address.hostname != application:
        raise SignatureError(f"was made on another page than one of {application}")
