"""SSH transport: connect, verify the host key, log in. All errors are HostErrors."""

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

# paramiko logs stack traces for every error that is raised here with a message.
_LOG = "connectors.ssh.paramiko"
logging.getLogger(_LOG).setLevel(logging.CRITICAL + 1)

# Algorithms that are never used, even where paramiko supports them.
REFUSED_ALGORITHMS = {
    "ciphers": ("aes128-cbc", "aes192-cbc", "aes256-cbc", "3des-cbc", "blowfish-cbc", "arcfour"),
    "macs": ("hmac-md5", "hmac-md5-96", "hmac-sha1", "hmac-sha1-96"),
    "kex": (
        "diffie-hellman-group1-sha1",
        "diffie-hellman-group14-sha1",
        "diffie-hellman-group-exchange-sha1",
        # The host would choose the group, and so how long the calculation takes.
        "diffie-hellman-group-exchange-sha256",
    ),
    "keys": ("ssh-rsa", "ssh-dss"),
    "pubkeys": ("ssh-rsa", "ssh-dss"),
}
# The signature algorithms of an RSA key without ssh-rsa, which uses SHA-1.
_SIGNATURE_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}

# The fastest of those that remain.
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
    """Timeouts in seconds, and sizes in bytes.

    The silence of a command has no limit: a scrub may print nothing until its deadline. A dead
    peer is noticed by `unacknowledged`.
    """

    connect: float = 5.0
    """For a TCP connection."""
    handshake: float = 10.0
    """Until keys are agreed."""
    login: float = 10.0
    """Until the host has accepted or refused the login."""
    channel: float = 5.0
    """For a new channel on an open connection."""
    grace: float = 5.0
    """Beyond a command's own deadline, at which the host should have ended it."""
    unacknowledged: float = 20.0
    """For the host to acknowledge packets, and for its sshd to answer keepalives."""
    output: int = 64 * 1024 * 1024
    """Bytes of one command, both streams."""
    on_hang_up: Callable[[str, str], None] = lambda _host, _why: None
    """Called with host and reason when Keyturn closes the connection of a misbehaving host."""


# Intervals of an idle connection: each wakes its thread.
_POLL_SECONDS, _KEEPALIVE_SECONDS = 10.0, 30


class HostAddress(Protocol):
    """Where to connect: a Host of the inventory, or one that is not added yet."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def port(self) -> int: ...


class ConnectionLostError(UnreachableError):
    """A connection that was kept open is dead, and nothing was sent over it."""


class HostBusyError(UnreachableError):
    """The host refused the connection or channel because too many are open there."""


def open_tcp_connection(host: HostAddress, limits: SshLimits) -> socket.socket:
    """Open a TCP connection without send delay that notices a peer that is gone."""
    try:
        stream = socket.create_connection((host.address, host.port), timeout=limits.connect)
    except TimeoutError:
        raise UnreachableError(
            f"{format_address(host)} did not answer within {limits.connect:g} s: "
            "check that it is up and that no firewall blocks Keyturn"
        ) from None
    except ConnectionRefusedError:
        raise UnreachableError(
            f"{format_address(host)} refused the connection: check that sshd is running"
        ) from None
    except socket.gaierror:
        raise UnreachableError(
            f"{format_address(host)} has an address that DNS cannot resolve"
        ) from None
    except OSError as error:
        raise UnreachableError(
            f"{format_address(host)} is unreachable: {error.strerror}"
        ) from None
    # Nagle's algorithm costs 40 ms for each command.
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # The kernel probes an idle peer, which wakes no thread here.
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
    """Verify the host key over *below*, and only then log in.

    Returns the transport, and the stream below it. Raises HostError.
    """
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
    except Exception as error:
        _close_transport(transport, stream)
        if stream.hang_up_reason and stream.first_bytes.startswith(b"SSH-"):
            raise UnreachableError(format_hang_up(host, stream)) from None
        if isinstance(error, paramiko.SSHException | EOFError):
            raise UnreachableError(
                f"{format_address(host)} closed the connection during the login"
            ) from None
        raise
    except BaseException:
        _close_transport(transport, stream)
        raise
    stream.is_trusted = True
    # How often paramiko checks whether to end. close() shuts the stream down first.
    stream.settimeout(_POLL_SECONDS)
    transport.set_keepalive(_KEEPALIVE_SECONDS)
    return transport, stream


def make_stream(
    below: socket.socket | paramiko.Channel,
    host: HostAddress,
    limits: SshLimits,
    on_close: Callable[[], None] = lambda: None,
) -> Stream:
    """Return the stream of a connection to *host*; `limits.on_hang_up` is called for it."""
    return Stream(
        below, on_hang_up=lambda why: limits.on_hang_up(host.name, why), on_close=on_close
    )


def format_hang_up(host: HostAddress, stream: Stream) -> str:
    """Return the message for a connection that Keyturn closed because the host misbehaved."""
    return (
        f"Keyturn closed the connection to {format_address(host)}: {stream.hang_up_reason}. "
        "Check whether something else is behind that address, or whether the host is compromised"
    )


def fetch_host_key(host: HostAddress, limits: SshLimits | None = None) -> str:
    """Return the host key at an address, without logging in.

    Anyone who answers can show any key: compare it with the key on the host itself before you
    trust it. If the host has several, it is the one that belongs in the inventory.
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
    # Longer than the timeouts here, whose errors are more precise.
    transport.banner_timeout = transport.handshake_timeout = limits.handshake + 30
    # A host with several keys shows the first type in this list: the one in the inventory. The
    # others follow so that a host without it shows a key that an error message can name.
    options = transport.get_security_options()
    rest = tuple(kind for kind in options.key_types if kind not in wanted)
    options.key_types = (*wanted, *rest)
    options.ciphers = _order_by_preference(_CIPHERS, options.ciphers)
    options.digests = _order_by_preference(_MACS, options.digests)
    return transport


def _order_by_preference(preferred: Sequence[str], supported: Sequence[str]) -> tuple[str, ...]:
    """Return the supported algorithms with the preferred ones first."""
    first = tuple(name for name in preferred if name in supported)
    return (*first, *(name for name in supported if name not in first))


def _list_key_types(host: Host) -> tuple[str, ...]:
    """Return the key types to request: the type in the inventory, or any certificate."""
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
                f"{format_address(host)} began the SSH handshake and did not finish it "
                f"within {limits.handshake:g} s: check whether it is overloaded"
            )
        raise UnreachableError(
            f"{format_address(host)} accepted the connection but sent nothing: "
            "check whether it hangs, or whether another service uses that port"
        )
    if stream.hang_up_reason and stream.first_bytes.startswith(b"SSH-"):
        raise UnreachableError(format_hang_up(host, stream))
    if not transport.is_active():
        raise _make_handshake_error(transport.get_exception(), stream.first_bytes, host)


def _make_handshake_error(
    error: Exception | None, first: bytes, host: HostAddress
) -> UnreachableError | WeakAlgorithmsError:
    if isinstance(error, IncompatiblePeer):
        lacking = re.search(r"no acceptable ([^)]*)", str(error))
        return WeakAlgorithmsError(
            f"{format_address(host)} offers no {lacking[1] if lacking else 'SSH version'} "
            "that Keyturn accepts: update its sshd, or allow more in its configuration"
        )
    if not first or b"MaxStartups" in first:
        return HostBusyError(
            f"{format_address(host)} closed the connection before the SSH handshake: "
            "too many logins are in progress there (MaxStartups), or it blocks Keyturn's address"
        )
    if not first.startswith(b"SSH-"):
        line = first.split(b"\n")[0][:60].decode("ascii", "backslashreplace")
        return UnreachableError(
            f"{format_address(host)} is not an SSH server, it sent {line!r}: check the port"
        )
    if error is None or isinstance(error, EOFError | OSError):
        return UnreachableError(
            f"{format_address(host)} closed the connection during the SSH handshake"
        )
    return UnreachableError(f"{format_address(host)} violates the SSH protocol: {error}")


def _verify_host_key(transport: paramiko.Transport, host: Host) -> None:
    """Verify the host's key, or its certificate, against the inventory."""
    key = transport.get_remote_server_key()
    if host.host_key is None:
        return _verify_host_certificate(key, host)
    # Both are public; they are compared in constant time all the same.
    shown = key.asbytes()
    known = base64.b64decode(host.host_key.split()[1])
    if not hmac.compare_digest(shown, known):
        raise HostKeyMismatchError(
            f"{format_address(host)} shows the key {_format_fingerprint(shown)}, but the "
            f"inventory has {host.fingerprint}. Nothing was sent to it. Find out whether the host "
            "was reinstalled, and verify its key on the console before you change host_key in "
            "the inventory"
        )
    return None


def _verify_host_certificate(key: paramiko.PKey, host: Host) -> None:
    objection = host_certificate.find_certificate_error(
        key.public_blob.key_blob if key.public_blob else key.asbytes(),
        authority=str(host.host_ca),
        names=(host.name, host.address),
        now=time.time(),
        revoked=host.revoked_hashes,
    )
    if objection:
        raise HostKeyMismatchError(
            f"{format_address(host)} {objection}. The inventory has the CA {host.fingerprint}. "
            "Nothing was sent to it"
        )


def _log_in_by_key(
    transport: paramiko.Transport, host: Host, key: paramiko.PKey, limits: SshLimits
) -> None:
    judged = threading.Event()
    try:
        transport.auth_publickey(host.user, key, judged)
    except (paramiko.SSHException, EOFError, OSError):
        raise UnreachableError(
            f"{format_address(host)} closed the connection before the login"
        ) from None
    if not judged.wait(limits.login):
        raise UnreachableError(
            f"{format_address(host)} did not answer the login within {limits.login:g} s: check "
            "whether it is overloaded"
        )
    if transport.is_authenticated():
        return
    error = transport.get_exception()
    refusal = f"{format_address(host)} refuses {host.user} with key {host.key} ({key.fingerprint})"
    if isinstance(error, BadAuthenticationType | PartialAuthentication):
        methods = " or ".join(error.allowed_types) or "a method that it does not name"
        raise LoginError(f"{refusal}: it requires {methods}. Allow logins by key alone there")
    if not transport.is_active():
        raise UnreachableError(
            f"{format_address(host)} closed the connection during the login of {host.user}"
        )
    raise LoginError(
        f"{refusal}: add the public key to that user's authorized_keys, "
        "or check why its certificate is no longer accepted"
    )


def _log_in_by_password(
    transport: paramiko.Transport, host: Host, password: Password, limits: SshLimits
) -> None:
    """Log in to a network device: by password, keyboard-interactive, or without either.

    A device that accepts every SSH login, such as Dell's, prompts in its own command line.
    """
    transport.auth_timeout = limits.login
    error = f"{format_address(host)} refuses {host.user} with the password in {password.file}"
    try:
        _send_password(transport, host, password, _list_login_methods(transport, host))
    except BadAuthenticationType as refusal:
        methods = " or ".join(refusal.allowed_types) or "a method that it does not name"
        raise LoginError(f"{error}: it requires {methods}") from None
    except (paramiko.SSHException, EOFError, OSError):
        if transport.is_active():
            raise LoginError(f"{error}: correct the password in that file") from None
        raise UnreachableError(
            f"{format_address(host)} closed the connection during the login of {host.user}: "
            "check the password, and whether the device allows logins from this address"
        ) from None
    if not transport.is_authenticated():
        raise LoginError(f"{error}: it requires more than a password")


def _list_login_methods(transport: paramiko.Transport, host: Host) -> list[str]:
    """Return the login methods that the device names; none if the login has succeeded already."""
    try:
        # The answer to this names them, as for OpenSSH's client.
        transport.auth_none(host.user)
    except BadAuthenticationType as refusal:
        return refusal.allowed_types
    return []


def _send_password(
    transport: paramiko.Transport, host: Host, password: Password, methods: list[str]
) -> None:
    def answer(_title: str, _instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
        # A prompt whose answer is shown on the screen does not ask for a password.
        return ["" if is_echoed else password.text for _, is_echoed in prompts]

    if "keyboard-interactive" in methods and "password" not in methods:
        transport.auth_interactive(host.user, answer)
    elif methods:
        transport.auth_password(host.user, password.text, fallback=False)


def format_address(host: HostAddress) -> str:
    """Return the host's name with its address and port, as in `lb1 (192.0.2.1:22)`."""
    return f"{host.name} ({host.address}:{host.port})"


def _format_fingerprint(blob: bytes) -> str:
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
