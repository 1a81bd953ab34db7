"""Client key files are parsed once, and read again when they change."""

import os
import subprocess
from pathlib import Path

import pytest
from paramiko import Agent, AgentKey

from connectors import key_file
from connectors.errors import SetupError
from tests.playground.keys import make_key


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return make_key().write(tmp_path / "key")


def _certify(file: Path) -> None:
    """Write a user certificate beside the key, signed by a new CA."""
    public = file.with_name("key.pub")
    printed = subprocess.run(["ssh-keygen", "-y", "-f", file], check=True, capture_output=True)
    public.write_bytes(printed.stdout)
    authority = make_key().write(file.with_name("ca"))
    subprocess.run(
        ["ssh-keygen", "-q", "-s", authority, "-I", "keyturn", "-n", "keyturn", public],
        check=True,
        capture_output=True,
    )


@pytest.mark.real
def test_own_key_is_that_of_the_agent_if_it_holds_it(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    socket, public = tmp_path / "agent", file.with_name("key.pub")
    printed = subprocess.run(["ssh-keygen", "-y", "-f", file], check=True, capture_output=True)
    public.write_bytes(printed.stdout)
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        assert not isinstance(key_file.load_own_key(file), AgentKey)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        add = ["ssh-add", "-q", str(file)]
        while subprocess.run(add, capture_output=True, check=False).returncode:
            assert agent.poll() is None
        file.unlink()
        for named in (file, public):
            found = key_file.load_own_key(named)
            assert isinstance(found, AgentKey)
            assert found.get_base64() == public.read_text().split()[1]
            assert isinstance(found.agent, Agent)
            found.agent.close()
    finally:
        agent.kill()
        agent.wait()
    monkeypatch.delenv("SSH_AUTH_SOCK")
    with pytest.raises(SetupError, match="cannot read the key file"):
        key_file.load_own_key(file)


def test_client_key_is_parsed_once_for_all_hosts(file: Path):
    assert key_file.load_key(file) is key_file.load_key(file)


def test_replaced_client_key_is_read_again(file: Path):
    first = key_file.load_key(file)
    make_key().write(file)
    # The clock of files stands still for some milliseconds.
    os.utime(file, (1, 1))
    assert key_file.load_key(file).asbytes() != first.asbytes()


def test_user_certificate_added_beside_a_loaded_key_is_used(file: Path):
    assert key_file.load_key(file).public_blob is None
    _certify(file)
    assert key_file.load_key(file).public_blob is not None
    file.with_name("key-cert.pub").unlink()
    assert key_file.load_key(file).public_blob is None


def test_loaded_client_key_is_refused_when_readable_by_others_or_deleted(file: Path):
    key_file.load_key(file)
    file.chmod(0o640)
    with pytest.raises(SetupError, match="open to others"):
        key_file.load_key(file)
    file.unlink()
    with pytest.raises(SetupError, match="cannot read"):
        key_file.load_key(file)
