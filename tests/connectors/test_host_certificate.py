"""Host certificates are verified against their CA, with real OpenSSH servers."""

import base64
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from connectors import host_certificate, ssh
from connectors.command import Shell
from connectors.errors import HostKeyMismatchError
from connectors.host_certificate import find_certificate_error
from connectors.inventory import Host, compute_fingerprint
from tests.playground.authority import Authority, CertifiedSshd
from tests.playground.keys import KeyPair, KeyType, make_key

NOWHERE = Path("/")
HOUR = 3600


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def sshd() -> Iterator[CertifiedSshd]:
    sshd = CertifiedSshd()
    yield sshd
    sshd.close()


def _host(sshd: CertifiedSshd, authority: Authority) -> Host:
    entry = sshd.inventory_entry(area="infra")
    del entry["host_key"]
    return Host.model_validate({**entry, "name": "web1", "host_ca": authority.public})


def _start_with_certificate(sshd: CertifiedSshd, authority: Authority, **how: str) -> None:
    certificate = authority.sign(sshd.host_key, sshd.directory / "host.pub", **how)
    sshd.certificates = (certificate,)
    sshd.start()


def _run_echo(host: Host) -> str:
    session = ssh.connect(host, NOWHERE)
    try:
        return session.run(Shell(("echo", "hello"))).out
    finally:
        session.close()


@pytest.mark.real
@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
@pytest.mark.parametrize("signer", ["ed25519", "ecdsa", "rsa"])
def test_host_certificate_is_accepted_when_the_ca_signed_the_host_key(
    kind: KeyType, signer: KeyType, tmp_path: Path
):
    authority = Authority(tmp_path, signer)
    with CertifiedSshd(host_key_types=(kind,)) as sshd:
        sshd.stop()
        _start_with_certificate(sshd, authority, principals="other.example,web1")
        assert _run_echo(_host(sshd, authority)) == "hello\n"


@pytest.mark.real
def test_certificate_of_a_revoked_key_is_refused(sshd: CertifiedSshd, authority: Authority):
    _start_with_certificate(sshd, authority, principals="web1")
    host = _host(sshd, authority)
    fingerprint = compute_fingerprint(sshd.host_key.split()[1])
    other = compute_fingerprint(make_key().public.split()[1])
    assert _run_echo(host.model_copy(update={"revoked_keys": (other,)})) == "hello\n"
    with pytest.raises(HostKeyMismatchError, match="revoked_keys"):
        _run_echo(host.model_copy(update={"revoked_keys": (other, fingerprint)}))
    with pytest.raises(ValueError, match="is in revoked_keys"):
        Host.model_validate(
            {
                **sshd.inventory_entry(area="infra"),
                "name": "web1",
                "revoked_keys": [fingerprint],
            }
        )


@pytest.mark.real
def test_host_certificate_for_the_address_of_the_host_is_accepted(
    sshd: CertifiedSshd, authority: Authority
):
    _start_with_certificate(sshd, authority, principals=sshd.address)
    assert _run_echo(_host(sshd, authority)) == "hello\n"


REFUSED = pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"validity": "20200101:20200102"}, "has expired: let its CA sign a new one"),
        ({"validity": "+1h:+2h"}, "is not valid yet"),
        ({"principals": "web2"}, "for web2, not for web1 or 127.0.0.1"),
        ({"principals": "web*"}, "for web*, not for web1"),
        ({"principals": ""}, "for any host, not for web1"),
    ],
)


@pytest.mark.real
@REFUSED
def test_invalid_host_certificate_is_refused_before_login(
    sshd: CertifiedSshd, authority: Authority, how: dict[str, str], says: str
):
    _start_with_certificate(sshd, authority, **how)
    with pytest.raises(HostKeyMismatchError) as error:
        _run_echo(_host(sshd, authority))
    assert says in str(error.value)
    assert sshd.accepted == 0


@pytest.mark.real
def test_host_certificate_of_another_ca_is_refused(
    sshd: CertifiedSshd, authority: Authority, tmp_path: Path
):
    (tmp_path / "other").mkdir()
    _start_with_certificate(sshd, Authority(tmp_path / "other"))
    with pytest.raises(HostKeyMismatchError, match="a certificate of another CA"):
        _run_echo(_host(sshd, authority))
    assert sshd.accepted == 0


@pytest.mark.real
def test_plain_host_key_is_refused_when_a_certificate_is_required(
    sshd: CertifiedSshd, authority: Authority
):
    sshd.start()
    with pytest.raises(HostKeyMismatchError, match="shows a plain key"):
        _run_echo(_host(sshd, authority))
    assert sshd.accepted == 0


@pytest.mark.real
@REFUSED
def test_without_the_certificate_check_an_invalid_host_certificate_is_accepted(
    sshd: CertifiedSshd,
    authority: Authority,
    how: dict[str, str],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
):
    assert says

    def nothing(*_: object, **__: object) -> str:
        return ""

    monkeypatch.setattr(host_certificate, "find_certificate_error", nothing)
    _start_with_certificate(sshd, authority, **how)
    assert _run_echo(_host(sshd, authority)) == "hello\n"


# --- what no OpenSSH server would show ---


class _BlobKey(paramiko.Ed25519Key):
    """A host key that presents any given blob and still signs."""

    blob = b""

    def asbytes(self) -> bytes:
        return self.blob


def _listen(listener: socket.socket, key: _BlobKey, asked: list[str]) -> None:
    class Server(paramiko.ServerInterface):
        def get_allowed_auths(self, username: str) -> str:
            asked.append(username)
            return "publickey"

    stream, _ = listener.accept()
    with paramiko.Transport(stream) as transport:
        transport.add_server_key(key)
        kind = "ssh-ed25519-cert-v01@openssh.com"
        transport.server_key_dict = {kind: key}
        transport.start_server(event=threading.Event(), server=Server())
        transport.join(10)


@pytest.mark.parametrize(
    ("options", "says"),
    [((), "for users, not for hosts"), (("-h",), "with an invalid signature")],
)
def test_forged_or_user_certificate_of_a_host_is_refused_before_login(
    authority: Authority, tmp_path: Path, options: tuple[str, ...], says: str
):
    pair = make_key()
    file = pair.write(tmp_path / "host")
    blob = _blob(authority.sign(pair.public, tmp_path / "host.pub", options=options))
    key = _BlobKey.from_private_key_file(str(file))
    key.blob = blob if not options else blob[:-1] + bytes([blob[-1] ^ 1])
    asked: list[str] = []
    client = make_key().write(tmp_path / "client")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_listen, args=(listener, key, asked))
        thread.start()
        entry = {"name": "web1", "address": "127.0.0.1", "port": listener.getsockname()[1]}
        host = Host.model_validate(
            {**entry, "area": "infra", "key": str(client), "host_ca": authority.public}
        )
        with pytest.raises(HostKeyMismatchError, match=says):
            ssh.connect(host, NOWHERE)
        thread.join()
    assert asked == []


# --- single bytes and words ---


def _blob(file: Path) -> bytes:
    return base64.b64decode(file.read_text().split()[1])


@pytest.fixture
def good(authority: Authority, tmp_path: Path) -> tuple[bytes, KeyPair]:
    pair = make_key()
    return _blob(authority.sign(pair.public, tmp_path / "one.pub")), pair


def _find_error(blob: bytes, authority: Authority, now: float) -> str:
    return find_certificate_error(blob, authority=authority.public, names=("web1",), now=now)


def test_host_certificate_with_any_byte_changed_or_cut_is_refused(
    good: tuple[bytes, KeyPair], authority: Authority, now: float
):
    blob, _ = good
    assert _find_error(blob, authority, now) == ""
    for place in range(len(blob)):
        other = blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :]
        assert _find_error(other, authority, now), place
        assert _find_error(blob[:place], authority, now), place


@pytest.fixture
def now(tmp_path: Path) -> float:
    file = tmp_path / "now"
    file.touch()
    return file.stat().st_mtime


def test_host_certificate_is_refused_before_and_after_its_validity(
    good: tuple[bytes, KeyPair], authority: Authority, now: float
):
    blob, _ = good
    assert "not valid yet" in _find_error(blob, authority, now - 2 * HOUR)
    assert "has expired" in _find_error(blob, authority, now + 2 * HOUR)


def test_host_certificate_with_an_unknown_critical_option_is_refused(
    authority: Authority, tmp_path: Path, now: float
):
    options = ("-h", "-O", "critical:only-at=night")
    blob = _blob(authority.sign(make_key().public, tmp_path / "one.pub", options=options))
    assert "unknown critical options" in _find_error(blob, authority, now)


def test_host_certificate_signed_with_sha_1_is_refused(tmp_path: Path, now: float):
    authority = Authority(tmp_path, "rsa")
    key = make_key().public
    good = _blob(authority.sign(key, tmp_path / "one.pub"))
    assert _find_error(good, authority, now) == ""
    broken = _blob(authority.sign(key, tmp_path / "two.pub", options=("-h", "-t", "ssh-rsa")))
    assert "invalid signature" in _find_error(broken, authority, now)
