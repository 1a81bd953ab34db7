"""The files by which a host checks people's signatures, as root installs them."""

import json
import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from bot.hosts import sudo_rules
from bot.hosts.host_files import Signer, format_enrolment, format_floor, format_signers
from connectors import haproxy, openvpn
from connectors.command import Shell
from connectors.inventory import Host
from connectors.run_signed import PROGRAM_PATH, PROGRAM_TEXT
from runbooks import load_catalogue
from tests.cli_process import run_keyturn_with_policy
from tests.playground.keys import make_key
from tests.policies import give_signing_key, write_policy

HOST = Host.model_validate(
    {
        "name": "lb1",
        "address": "lb1.example.com",
        "user": "keyturn",
        "host_key": make_key().public,
        "area": "edge",
        "tags": ["haproxy", "zfs"],
    }
)
DORA, OLGA = Signer("dora", "ssh-ed25519 AAAAdora"), Signer("olga", "ssh-ed25519 AAAAolga")
FLOOR = format_floor("lb1", {"owners": ["olga", "adam"]}, "https://sign.example.com")
_TRIAL = """\
set -e
mount -t tmpfs none /usr/local/lib
mount -t tmpfs none /etc/sudoers.d
PATH=$2:$PATH sh "$1"
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root may install files without changing this machine's own")
    return tmp_path


def _move(text: str, place: Path) -> str:
    for path in ("/etc/keyturn", "/var/lib/keyturn-signed"):
        text = text.replace(path, f"{place}{path}")
    return text


def _install(
    place: Path, *signers: Signer, programs: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Install the files below a directory; programs: shell code that stands for some of a host."""
    text = format_enrolment(HOST, format_signers(signers), FLOOR)
    (place / "program").write_text(
        f"{_move(text, place)}cat {PROGRAM_PATH} /etc/sudoers.d/keyturn\n"
    )
    own = place / "bin"
    own.mkdir(exist_ok=True)
    for name, code in (programs or {}).items():
        (own / name).write_text(f"#!/bin/sh\n{code}\n")
        (own / name).chmod(0o755)
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", _TRIAL, "trial", str(place / "program"), str(own)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_signers_and_floor_name_people_and_how_many_sign():
    assert format_signers([OLGA, DORA]) == (
        'dora namespaces="keyturn-plan" ssh-ed25519 AAAAdora\n'
        'olga namespaces="keyturn-plan" ssh-ed25519 AAAAolga\n'
    )
    assert [line for line in FLOOR.splitlines() if not line.startswith("#")] == [
        "floor 1",
        "host lb1",
        "origin https://sign.example.com",
        "group owners adam olga",
        "signed 2 any",
        "signed 1 owners",
    ]
    assert "origin" not in format_floor("lb1", {"owners": ["olga"]}, "")


@pytest.mark.real
def test_enrolment_installs_files_of_root_and_keeps_what_it_replaces(place: Path):
    first = _install(place, DORA)
    assert first.returncode == 0, first.stderr
    etc, record = place / "etc/keyturn", place / "var/lib/keyturn-signed"
    assert (etc / "floor").read_text() == FLOOR
    assert _move(PROGRAM_TEXT, place) in first.stdout
    assert abs(int((record / "since").read_text()) - time.time()) < 60
    assert (record.stat().st_mode & 0o777, record.stat().st_uid) == (0o700, 0)
    (record / "since").write_text("5\n")
    again = _install(place, DORA, OLGA)
    assert f"{etc}/signers is another now" in again.stdout
    assert (etc / "signers.before").read_text() == format_signers([DORA])
    assert (etc / "signers").read_text() == format_signers([DORA, OLGA])
    assert sorted(each.name for each in etc.iterdir()) == ["floor", "signers", "signers.before"]
    # When the record began is kept: else a plan from before could run again.
    assert (record / "since").read_text() == "5\n"


@pytest.mark.real
@pytest.mark.parametrize("version", ["OpenSSH_8.4p1", "OpenSSH_7.9", "Dropbear v2022.83", ""])
def test_enrolment_refuses_a_host_whose_openssh_is_too_old(place: Path, version: str):
    done = _install(place, DORA, programs={"ssh": f"echo '{version} Debian' >&2"})
    assert done.returncode == 1
    assert "signatures need 8.9 or later: nothing was changed" in done.stderr
    assert not (place / "etc/keyturn").exists()


@pytest.mark.real
@pytest.mark.parametrize("version", ["OpenSSH_8.9p1 Ubuntu-3", "OpenSSH_9.2p1", "OpenSSH_10.0"])
def test_enrolment_takes_a_new_openssh(place: Path, version: str):
    assert _install(place, DORA, programs={"ssh": f"echo '{version}' >&2"}).returncode == 0


def test_sudo_lets_the_changing_login_of_an_enrolled_host_start_one_program():
    signed = HOST.model_copy(update={"signed": True})
    changes = [
        grant.rule.program
        for grant in sudo_rules.list_host_sudo_grants(signed)
        if not grant.rule.read_only
    ]
    assert changes == [PROGRAM_PATH]
    assert len(sudo_rules.list_host_sudo_grants(HOST)) > len(
        sudo_rules.list_host_sudo_grants(signed)
    )


def test_sudo_lets_people_of_an_enrolled_host_do_what_keyturn_may():
    people = HOST.model_copy(update={"signed": True, "offline_logins": ("%ops", "olga")})
    lines = sudo_rules.format_sudoers(people, sudo_rules.list_host_sudo_grants(people))
    for login in ("keyturn", "%ops", "olga"):
        assert f'{login} ALL=(root) NOPASSWD: {PROGRAM_PATH} ""' in lines.splitlines()
    assert (
        _list_rules(lines, "%ops") == _list_rules(lines, "olga") == _list_rules(lines, "keyturn")
    )
    unsigned = people.model_copy(update={"signed": False})
    assert "ops" not in sudo_rules.format_sudoers(
        unsigned, sudo_rules.list_host_sudo_grants(unsigned)
    )


def _list_rules(lines: str, login: str) -> list[str]:
    return [
        line.removeprefix(f"{login} ")
        for line in lines.splitlines()
        if line.startswith(f"{login} ALL=")
    ]


def test_queries_of_an_enrolled_host_are_those_that_its_sudo_permits():
    """Also where the inventory does not say that scripts are there: enrolment installs them."""
    signed = HOST.model_copy(update={"signed": True})
    granted = sudo_rules.list_host_sudo_grants(signed, load_catalogue())
    rules = [grant.rule for grant in granted]
    for query in (openvpn.query_status(), haproxy.query_tables()):
        command = signed.resolve(cast("Shell", query.command))
        assert isinstance(command, Shell)
        assert command.argv[:3] == ("sudo", "-n", "--")
        assert any(rule.is_allowed(command.words[3:], {}) for rule in rules), command
    plain = HOST.resolve(cast("Shell", haproxy.query_tables().command))
    assert isinstance(plain, Shell)
    assert plain.argv[0] == "socat"
    assert not any(grant.rule.enrolled for grant in sudo_rules.list_host_sudo_grants(HOST))


@pytest.mark.parametrize("changed", [{"user": "root"}, {"platform": "cisco_ios"}])
def test_host_without_a_shell_or_with_a_root_login_cannot_be_enrolled(changed: dict[str, str]):
    entry = {**HOST.model_dump(exclude_none=True), "signed": True, **changed}
    with pytest.raises(ValueError, match="login is not root"):
        Host.model_validate(entry)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A policy directory in which Dora and Olga have signing keys, and lb1 a login of its own."""
    written = write_policy(tmp_path / "policy").path
    for name in ("dora", "olga"):
        give_signing_key(written, name, make_key().public)
    entry = HOST.model_dump(mode="json", exclude={"name"}, exclude_none=True)
    inventory = {"hosts": {"lb1": entry, "sw1": {**entry, "platform": "cisco_ios"}}}
    (written / "inventory.yaml").write_text(json.dumps(inventory))
    return written


def test_enrolled_host_is_known_by_its_own_key():
    entry = HOST.model_dump(exclude_none=True, exclude={"host_key"})
    with pytest.raises(ValueError, match="signed needs host_key"):
        Host.model_validate({**entry, "signed": True, "host_ca": HOST.host_key})


def test_host_files_names_the_people_of_the_policy(policy: Path):
    printed = run_keyturn_with_policy(policy, "host-files", "lb1")
    assert printed.returncode == 0, printed.stderr
    assert "note: then set `signed: true` for lb1 in inventory.yaml" in printed.stderr
    for line in (
        "group owners olga",
        "host lb1",
        "signed 2 any",
        'dora namespaces="keyturn-plan"',
    ):
        assert line in printed.stdout
    assert "adam namespaces" not in printed.stdout
    assert "\nverify-user\n" not in printed.stdout
    people = policy / "people.yaml"
    people.write_text(f"verify_user: true\n{people.read_text()}")
    strict = run_keyturn_with_policy(policy, "host-files", "lb1")
    assert "\nverify-user\n" in strict.stdout, strict.stderr


@pytest.mark.parametrize(
    ("host", "file", "pattern", "new", "why"),
    [
        ("sw1", "inventory.yaml", "^", "", "it needs a shell"),
        ("lb1", "inventory.yaml", '"user": "keyturn"', '"user": "root"', "that is not root"),
        ("lb1", "people.yaml", r"(olga: {signing_keys:) [^]]*]", r"\1 []", "an owner of"),
        ("lb1", "people.yaml", r"(dora: {signing_keys:) [^]]*]", r"\1 []", "two people need"),
        ("nope", "people.yaml", "^", "", "there is no host 'nope'"),
    ],
)
def test_host_files_refuses_a_host_that_nothing_could_change(
    policy: Path, host: str, file: str, pattern: str, new: str, why: str
):
    place = policy / file
    place.write_text(re.sub(pattern, new, place.read_text()))
    printed = run_keyturn_with_policy(policy, "host-files", host)
    assert (printed.returncode != 0, printed.stdout) == (True, "")
    assert why in printed.stderr
    assert len(printed.stderr.splitlines()) == 1
