"""One SSH transport: dialled, known by its host key, logged in. Every trouble in our own words."""

import base64
import hashlib
import hmac
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import paramiko
from paramiko.ssh_exception import (
    BadAuthenticationType,
    IncompatiblePeer,
    PartialAuthentication,
)

from connectors import host_certificate
from connectors.errors import (
    HostKeyMismatchError,
    LoginError,
    UnreachableError,
    WeakAlgorithmsError,
)
from connectors.inventory import Host
from connectors.password import Password
from connectors.ssh_stream import HostPacketizer, Stream

# paramiko logs its own account, with stack traces, of everything that is told in words here.
_LOG = "connectors.ssh.paramiko"
logging.getLogger(_LOG).setLevel(logging.CRITICAL + 1)

# What is never spoken, even where paramiko still knows it: by the words of the SSH protocol.
REFUSED_ALGORITHMS = {
    "ciphers": ("aes128-cbc", "aes192-cbc", "aes256-cbc", "3des-cbc", "blowfish-cbc", "arcfour"),
    "macs": ("hmac-md5", "hmac-md5-96", "hmac-sha1", "hmac-sha1-96"),
    "kex": (
        "diffie-hellman-group1-sha1",
        "diffie-hellman-group14-sha1",
        "diffie-hellman-group-exchange-sha1",
        # The host would choose the numbers that we calculate with, and how long that takes.
        "diffie-hellman-group-exchange-sha256",
    ),
    "keys": ("ssh-rsa", "ssh-dss"),
    "pubkeys": ("ssh-rsa", "ssh-dss"),
}
# An RSA key signs by one of these; its third way, ssh-rsa, uses SHA-1.
_SIGNATURE_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}

# The quickest of those that remain.
_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
_MACS = ("hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com")

_PREFERRED_KEY_TYPE = "ssh-ed25519"
_CERTIFICATE_TYPES = tuple(
    f"{kind}-cert-v01@openssh.com"
    for kind in (
        _PREFERRED_KEY_TYPE,
        *("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"),
        *_SIGNATURE_ALGORITHMS["ssh-rsa"],
    )
)


@dataclass(frozen=True)
class SshLimits:
    """How long we wait, in seconds, and how much we listen to.

    connect: for a TCP connection. handshake: until keys are agreed. login: until it is judged.
    channel: for a new channel on a warm connection. grace: beyond a command's own deadline, at
    which the host should have ended it. unacknowledged: for the host's machine to confirm what
    was sent, and while a command runs for its sshd to give any sign when it is asked for one;
    then the connection counts as dead. output: bytes of one command, both streams. on_cut: told
    the host's name, and why, when we hang up on one that floods us or breaks the protocol.

    There is no limit on a command's silence: a scrub or a reload may say nothing for as long as
    its deadline allows, and a dead peer is noticed by `unacknowledged`.
    """

    connect: float = 5.0
    handshake: float = 10.0
    login: float = 10.0
    channel: float = 5.0
    grace: float = 5.0
    unacknowledged: float = 20.0
    output: int = 64 * 1024 * 1024
    on_hang_up: Callable[[str, str], None] = lambda _host, _why: None


# While nobody uses it: each wakes its thread.
_POLL_SECONDS, _KEEPALIVE_SECONDS = 10.0, 30


class HostAddress(Protocol):
    """What it takes to call a host: a Host of the inventory, or one that is to become one."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def port(self) -> int: ...


class ConnectionLostError(UnreachableError):
    """A connection that was kept warm is dead, and was found so before anything was sent."""


class HostBusyError(UnreachableError):
    """The host refused us unheard, as sshd does when too much is under way there at once."""


def open_tcp_connection(host: HostAddress, limits: SshLimits) -> socket.socket:
    """Open a TCP connection that sends at once and notices a peer that is gone."""
    try:
        stream = socket.create_connection((host.address, host.port), timeout=limits.connect)
    except TimeoutError:
        raise UnreachableError(
            f"{format_address(host)} did not answer within {limits.connect:g} s: "
            "is it up, and does a firewall let us through?"
        ) from None
    except ConnectionRefusedError:
        raise UnreachableError(
            f"{format_address(host)} refused the connection: sshd may not be running"
        ) from None
    except socket.gaierror:
        raise UnreachableError(
            f"{format_address(host)} has an address that DNS does not know"
        ) from None
    except OSError as trouble:
        raise UnreachableError(
            f"{format_address(host)} cannot be reached: {trouble.strerror}"
        ) from None
    # Nagle's algorithm costs 40 ms for each command.
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # The kernel asks an idle peer whether it is still there, which wakes nobody here.
    quarter = max(1, int(limits.unacknowledged / 4))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, quarter)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, quarter)
    # Keepalives alone do not end a connection whose packets vanish: this does.
    milliseconds = int(limits.unacknowledged * 1000)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    return stream


def open_transport(
    host: Host,
    key: paramiko.PKey | Password,
    limits: SshLimits,
    below: socket.socket | paramiko.Channel | Stream,
) -> tuple[paramiko.Transport, Stream]:
    """Make sure that *host* is the one we know, and only then log in, over what is *below*."""
    stream = below if isinstance(below, Stream) else make_stream(below, host, limits)
    transport = _make_transport(stream, _list_key_types(host), limits)
    try:
        _complete_handshake(transport, stream, host, limits)
        _verify_host_key(transport, host)
        cast("HostPacketizer", transport.packetizer).pin_host_key(transport)
        if isinstance(key, Password):
            _log_in_by_password(transport, host, key, limits)
        else:
            _log_in_by_key(transport, host, key, limits)
    except Exception as trouble:
        _close_transport(transport, stream)
        if stream.hang_up_reason and stream.first_bytes.startswith(b"SSH-"):
            raise UnreachableError(format_hang_up(host, stream)) from None
        if isinstance(trouble, paramiko.SSHException | EOFError):
            raise UnreachableError(f"{format_address(host)} hung up during the login") from None
        raise
    except BaseException:
        _close_transport(transport, stream)
        raise
    stream.is_trusted = True
    # paramiko looks so often whether it is to end. Whoever ends it shuts its stream down first.
    stream.settimeout(_POLL_SECONDS)
    transport.set_keepalive(_KEEPALIVE_SECONDS)
    return transport, stream


def make_stream(
    below: socket.socket | paramiko.Channel,
    host: HostAddress,
    limits: SshLimits,
    on_close: Callable[[], None] = lambda: None,
) -> Stream:
    """Return the stream of a connection to *host*, which tells *limits* when it is cut."""
    return Stream(
        below, on_hang_up=lambda why: limits.on_hang_up(host.name, why), on_close=on_close
    )


def format_hang_up(host: HostAddress, stream: Stream) -> str:
    return (
        f"we hung up on {format_address(host)}, since {stream.hang_up_reason}: is something "
        "else behind that address, "
        "or is the host no longer its own?"
    )


def fetch_host_key(host: HostAddress, limits: SshLimits | None = None) -> str:
    """Return the public key that answers at an address, without logging in there.

    Whoever answers may show any key: it is worth nothing before it was compared on the host
    itself. Where there are several, the one that an inventory should hold comes first.
    """
    limits = limits or SshLimits()
    stream = make_stream(open_tcp_connection(host, limits), host, limits)
    transport = _make_transport(stream, (_PREFERRED_KEY_TYPE,), limits)
    try:
        _complete_handshake(transport, stream, host, limits)
        key = transport.get_remote_server_key()
        return f"{key.get_name()} {key.get_base64()}"
    finally:
        _close_transport(transport, stream)


def _close_transport(transport: paramiko.Transport, stream: Stream) -> None:
    transport.packetizer.complete_handshake()  # or its timer would outlive it
    transport.close()
    stream.close()


def _make_transport(
    stream: Stream, wanted: tuple[str, ...], limits: SshLimits
) -> paramiko.Transport:
    transport = paramiko.Transport(
        stream,  # pyright: ignore[reportArgumentType] - as documented, no socket is needed
        disabled_algorithms=REFUSED_ALGORITHMS,
        packetizer_class=HostPacketizer,
    )
    transport.set_log_channel(_LOG)
    # Longer than we wait ourselves, who can say better what was amiss.
    transport.banner_timeout = transport.handshake_timeout = limits.handshake + 30
    # A host with several keys shows the first kind that we name: the one that we know it by. The
    # others are named so that a host without it shows something that can be told.
    options = transport.get_security_options()
    rest = tuple(kind for kind in options.key_types if kind not in wanted)
    options.key_types = (*wanted, *rest)
    options.ciphers = _order_by_preference(_CIPHERS, options.ciphers)
    options.digests = _order_by_preference(_MACS, options.digests)
    return transport


def _order_by_preference(liked: Sequence[str], all_of_them: Sequence[str]) -> tuple[str, ...]:
    """Name those first that we like best, among those that paramiko knows."""
    known = tuple(one for one in liked if one in all_of_them)
    return (*known, *(one for one in all_of_them if one not in known))


def _list_key_types(host: Host) -> tuple[str, ...]:
    """Return what a host is to show: its key of the kind that we know, or any certificate."""
    if host.host_key is None:
        return _CERTIFICATE_TYPES
    known = host.host_key.split()[0]
    return _SIGNATURE_ALGORITHMS.get(known, (known,))


def _complete_handshake(
    transport: paramiko.Transport, stream: Stream, host: HostAddress, limits: SshLimits
) -> None:
    done = threading.Event()
    transport.start_client(event=done)
    if not done.wait(limits.handshake):
        if stream.first_bytes:
            raise UnreachableError(
                f"{format_address(host)} began to speak SSH and did not come to an end "
                f"within {limits.handshake:g} s: is it overloaded?"
            )
        raise UnreachableError(
            f"{format_address(host)} accepted the connection but never spoke SSH: "
            "is it hung, or is something else behind that port?"
        )
    if stream.hang_up_reason and stream.first_bytes.startswith(b"SSH-"):
        raise UnreachableError(format_hang_up(host, stream))
    if not transport.is_active():
        raise _make_handshake_error(transport.get_exception(), stream.first_bytes, host)


def _make_handshake_error(
    trouble: Exception | None, first: bytes, host: HostAddress
) -> UnreachableError | WeakAlgorithmsError:
    if isinstance(trouble, IncompatiblePeer):
        lacking = re.search(r"no acceptable ([^)]*)", str(trouble))
        return WeakAlgorithmsError(
            f"{format_address(host)} offers no {lacking[1] if lacking else 'SSH version'} "
            "that we trust: update its sshd, or lift what its configuration restricts"
        )
    if not first or b"MaxStartups" in first:
        return HostBusyError(
            f"{format_address(host)} hung up before it spoke SSH: "
            "too many log in there at once (MaxStartups), or it blocks our address"
        )
    if not first.startswith(b"SSH-"):
        said = first.split(b"\n")[0][:60].decode("ascii", "backslashreplace")
        return UnreachableError(
            f"{format_address(host)} is no SSH server: it said {said!r}. Is that the right port?"
        )
    if trouble is None or isinstance(trouble, EOFError | OSError):
        return UnreachableError(
            f"{format_address(host)} hung up in the middle of the SSH handshake"
        )
    return UnreachableError(f"{format_address(host)} does not keep to the SSH protocol: {trouble}")


def _verify_host_key(transport: paramiko.Transport, host: Host) -> None:
    """Make sure by the key, or by its certificate, that this is the host of the inventory."""
    key = transport.get_remote_server_key()
    if host.host_key is None:
        return _verify_host_certificate(key, host)
    # Both are public; they are compared in constant time all the same.
    shown = key.asbytes()
    known = base64.b64decode(host.host_key.split()[1])
    if not hmac.compare_digest(shown, known):
        raise HostKeyMismatchError(
            f"{format_address(host)} shows the key {_format_fingerprint(shown)}, and the "
            "inventory knows it by "
            f"{host.fingerprint}. Nothing was sent to it. Was it installed anew? Find out who "
            "answers there before you change host_key in the inventory"
        )
    return None


def _verify_host_certificate(key: paramiko.PKey, host: Host) -> None:
    objection = host_certificate.find_certificate_error(
        key.public_blob.key_blob if key.public_blob else key.asbytes(),
        authority=str(host.host_ca),
        names=(host.name, host.address),
        now=time.time(),
    )
    if objection:
        raise HostKeyMismatchError(
            f"{format_address(host)} {objection}. The inventory knows it by the CA "
            f"{host.fingerprint}. "
            "Nothing was sent to it"
        )


def _log_in_by_key(
    transport: paramiko.Transport, host: Host, key: paramiko.PKey, limits: SshLimits
) -> None:
    judged = threading.Event()
    try:
        transport.auth_publickey(host.user, key, judged)
    except (paramiko.SSHException, EOFError, OSError):
        raise UnreachableError(f"{format_address(host)} hung up before the login") from None
    if not judged.wait(limits.login):
        raise UnreachableError(
            f"{format_address(host)} did not judge our login within {limits.login:g} s: is it "
            "overloaded?"
        )
    if transport.is_authenticated():
        return
    trouble = transport.get_exception()
    asked = (
        f"{format_address(host)} refuses {host.user} with our key {host.key} ({key.fingerprint})"
    )
    if isinstance(trouble, BadAuthenticationType | PartialAuthentication):
        wants = " or ".join(trouble.allowed_types) or "nothing that it names"
        raise LoginError(f"{asked}: it wants {wants}. Allow logins by key alone there")
    if not transport.is_active():
        raise UnreachableError(f"{format_address(host)} hung up during the login of {host.user}")
    raise LoginError(
        f"{asked}: put the public key into that user's authorized_keys, "
        "or look why its certificate is no longer taken"
    )


def _log_in_by_password(
    transport: paramiko.Transport, host: Host, password: Password, limits: SshLimits
) -> None:
    """Log in as a network device wants it: by password, by a question, or without any.

    One that lets everybody in asks within its own command line, as Dell's do.
    """
    transport.auth_timeout = limits.login
    asked = f"{format_address(host)} refuses {host.user} with our password ({password.file})"
    try:
        _send_password(transport, host, password, _list_login_methods(transport, host))
    except BadAuthenticationType as refusal:
        wants = " or ".join(refusal.allowed_types) or "nothing that it names"
        raise LoginError(f"{asked}: it wants {wants}") from None
    except (paramiko.SSHException, EOFError, OSError):
        if transport.is_active():
            raise LoginError(f"{asked}: put the right one there") from None
        raise UnreachableError(
            f"{format_address(host)} hung up during the login of {host.user}: "
            "does it take our password, and does it let us log in from here?"
        ) from None
    if not transport.is_authenticated():
        raise LoginError(f"{asked}: it wants more than that")


def _list_login_methods(transport: paramiko.Transport, host: Host) -> list[str]:
    """Return the ways to log in that the device names; none if it has let us in already."""
    try:
        # It tells them in its answer to this, and OpenSSH's client asks it too.
        transport.auth_none(host.user)
    except BadAuthenticationType as refusal:
        return refusal.allowed_types
    return []


def _send_password(
    transport: paramiko.Transport, host: Host, password: Password, taken: list[str]
) -> None:
    def answer(_title: str, _more: str, asked: list[tuple[str, bool]]) -> list[str]:
        # What it would show on a screen is no question for a password.
        return ["" if shown else password.text for _, shown in asked]

    if "keyboard-interactive" in taken and "password" not in taken:
        transport.auth_interactive(host.user, answer)
    elif taken:
        transport.auth_password(host.user, password.text, fallback=False)


def format_address(host: HostAddress) -> str:
    return f"{host.name} ({host.address}:{host.port})"


def _format_fingerprint(blob: bytes) -> str:
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
