"""A web server over TLS that answers byte for byte what it is given, right or wrong."""

import contextlib
import datetime
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# What is sent in answer: all of it, or as a function sends it.
Reply = bytes | Callable[[ssl.SSLSocket], None]


def answer(
    body: bytes,
    *,
    kind: str = "application/rss+xml",
    status: str = "200 OK",
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """Return a whole HTTP answer; *headers* may contradict the rest."""
    given = {"Content-Type": kind, "Content-Length": str(len(body))} | dict(headers or {})
    lines = [f"HTTP/1.1 {status}", "Connection: close", *map(": ".join, given.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Mirror:
    """Serves on a free port of 127.0.0.1, with a certificate that its own authority signed.

    authority: the file that a client must trust. names: what the certificate is for.
    replies: by path; asking for another ends the connection. asked: the paths asked for.
    """

    def __init__(self, directory: Path, *, names: tuple[str, ...] = ("localhost",)) -> None:
        self.authority = directory / "authority.pem"
        self.replies: dict[str, Reply] = {}
        self.asked: list[str] = []
        self.heads: list[str] = []
        self._context = _context(directory, self.authority, names)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def url(self, path: str, *, host: str = "localhost") -> str:
        return f"https://{host}:{self.port}{path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone would not wake who waits for a connection.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(timeout=10)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(30)
        with (
            contextlib.suppress(OSError),
            connection,
            self._context.wrap_socket(connection, server_side=True) as tls,
        ):
            head = b""
            while b"\r\n\r\n" not in head:
                if not (piece := tls.recv(4096)):
                    return
                head += piece
            self.heads.append(head.decode())
            self.asked.append(head.split()[1].decode())
            reply = self.replies.get(self.asked[-1], b"")
            if callable(reply):
                reply(tls)
            else:
                tls.sendall(reply)


def _context(directory: Path, authority: Path, names: tuple[str, ...]) -> ssl.SSLContext:
    root, root_key = _certificate("Test authority", None, None, ())
    leaf, leaf_key = _certificate("Mirror", root, root_key, names)
    pem = serialization.Encoding.PEM
    authority.write_bytes(root.public_bytes(pem))
    chain = directory / "mirror.pem"
    private = leaf_key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain.write_bytes(private + leaf.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    return context


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
