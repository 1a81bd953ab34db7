"""Enrolling a host: its key is read from the network, and confirmed by a second person."""

import ctypes
import json
import socket
import subprocess
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner, Result
from ruamel.yaml import YAML

from bot.__main__ import main
from bot.cli.inventory import PLATFORMS
from bot.hosts import pending_hosts
from bot.hosts.enrolment import (
    HostCandidate,
    InvalidCandidateError,
    InvalidFingerprintError,
    find_fingerprint,
    split_address,
)
from bot.hosts.pending_hosts import LocalUser, PendingHost
from bot.policy.loader import load_policy
from connectors.errors import UnreachableError
from connectors.inventory import Inventory, Platform
from connectors.ssh_transport import fetch_host_key
from tests.bot.installation import create_installation
from tests.cli_process import run_keyturn, run_keyturn_with_policy
from tests.playground import sample_company
from tests.playground.device import ScriptedDevice
from tests.playground.fleet import LoopbackFleet
from tests.playground.keys import KeyType, make_key
from tests.playground.sshd import Sshd


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    sample_company.create_policy(tmp_path / "policy")
    return tmp_path / "policy"


def _read_fingerprint_on_host(tmp_path: Path, public: str) -> str:
    """Return what the host itself says of its key."""
    (tmp_path / "key.pub").write_text(f"{public} root@nas2\n")
    return subprocess.run(
        ["ssh-keygen", "-lf", str(tmp_path / "key.pub")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def _enrol_pending_host(policy: Path, sshd: Sshd) -> None:
    place = ("nas2", sshd.address, "--port", str(sshd.port))
    about = ("--area", "storage", "--tags", "nfs", "--json")
    result = run_keyturn_with_policy(policy, "inventory", "enrol", *place, *about)
    assert result.returncode == 0, result.stderr
    [entry] = json.loads(result.stdout)
    assert (entry["name"], entry["entry"]["host_key"]) == ("nas2", sshd.host_key)
    assert (entry["whole"], entry["notes"]) == (True, [])


def _change_enroller_to_dana(policy: Path) -> None:
    """Have the host wait as it does when somebody else asked for it, on another machine."""
    waiting = pending_hosts.list_pending_hosts(policy)
    dana = LocalUser(login="dana", uid=4711, machine="admin7")
    asked = {
        name: each.model_copy(update={"requested_by": dana}) for name, each in waiting.items()
    }
    pending_hosts.store_pending_hosts(policy, asked)


def _read_files(policy: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in policy.rglob("*") if path.is_file()}


@pytest.mark.real
def test_enrol_prints_host_key_and_entry_and_stores_the_host_as_pending(policy: Path, sshd: Sshd):
    before = _read_files(policy)
    place = ("nas2", sshd.address, "--port", str(sshd.port))
    result = run_keyturn_with_policy(
        policy, "inventory", "enrol", *place, "--area", "storage", "--tags", "nfs"
    )
    assert result.returncode == 0, result.stderr
    made = Inventory.model_validate(YAML(typ="safe").load(result.stdout))["nas2"]
    assert (made.host_key, made.port, made.area) == (sshd.host_key, sshd.port, "storage")
    assert made.tags == {"nfs"}
    assert made.fingerprint in result.stderr
    assert "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub" in result.stderr
    assert "keyturn inventory confirm nas2 SHA256:…" in result.stderr
    assert "note:" not in result.stderr
    after = _read_files(policy)
    assert after.pop(policy / "enrolling.yaml")
    assert after == before
    assert sshd.accepted == 0


@pytest.mark.real
def test_host_is_enrolled_by_one_person_in_an_area_with_one_owner(tmp_path: Path, sshd: Sshd):
    with create_installation(tmp_path):
        pass
    policy = tmp_path / "policy"
    environment = {"KEYTURN_POLICY": str(policy), "KEYTURN_DATA": str(tmp_path / "var")}

    def enrol(area: str, typed: str) -> Result:
        place = ("nas2", sshd.address, "--port", str(sshd.port))
        words = ("inventory", "enrol", *place, "--area", area, "--alone")
        return CliRunner(env=environment).invoke(main, words, input=f"{typed}\n")

    read = _read_fingerprint_on_host(tmp_path, sshd.host_key)
    two_owners = enrol("edge", read)
    assert (two_owners.exit_code, "has 2 owners (olga, adam)" in two_owners.stderr) == (4, True)
    other_key = enrol("storage", f"SHA256:{'A' * 43}")
    assert (other_key.exit_code, "another machine intercepts" in other_key.stderr) == (1, True)
    assert "nas2" not in load_policy(policy).inventory.hosts
    alone = enrol("storage", read)
    assert alone.exit_code == 0, alone.stderr
    assert load_policy(policy).inventory["nas2"].host_key == sshd.host_key
    assert " alone\n" in (policy / "inventory.yaml").read_text()
    log = run_keyturn(tmp_path, "changelog", "show", "--kind", "host enrolled alone", "--json")
    assert json.loads(log.stdout)["facts"]["fingerprint"] == find_fingerprint(read)


@pytest.mark.real
def test_enrolled_host_joins_the_inventory_when_a_second_person_confirms(
    policy: Path, sshd: Sshd, tmp_path: Path
):
    _enrol_pending_host(policy, sshd)
    version = load_policy(policy).version
    assert "nas2" not in load_policy(policy).inventory.hosts
    _change_enroller_to_dana(policy)
    read = _read_fingerprint_on_host(tmp_path, sshd.host_key)
    result = run_keyturn_with_policy(policy, "inventory", "confirm", "nas2", read, "--json")
    assert result.returncode == 0, result.stderr
    fingerprint = find_fingerprint(read)
    entry = json.loads(result.stdout)
    assert entry.pop("entry")["host_key"] == sshd.host_key
    assert entry == {"name": "nas2", "fingerprint": fingerprint, "written": True}
    now = load_policy(policy)
    assert now.version != version
    assert now.inventory["nas2"].host_key == sshd.host_key
    assert "requested by dana on admin7, confirmed by " in (policy / "inventory.yaml").read_text()
    assert not (policy / "enrolling.yaml").exists()
    again = run_keyturn_with_policy(policy, "inventory", "confirm", "nas2", read)
    assert (again.returncode, again.stdout) == (3, "")
    assert "no pending host nas2; pending hosts: none" in again.stderr


@pytest.mark.real
def test_enrolment_is_refused_when_its_requester_confirms(
    policy: Path, sshd: Sshd, tmp_path: Path
):
    _enrol_pending_host(policy, sshd)
    before = _read_files(policy)
    read = _read_fingerprint_on_host(tmp_path, sshd.host_key)
    result = run_keyturn_with_policy(policy, "inventory", "confirm", "nas2", read)
    assert (result.returncode, result.stdout) == (1, "")
    assert "a different person must confirm it" in result.stderr
    assert _read_files(policy) == before


@pytest.mark.real
def test_confirm_with_another_fingerprint_adds_no_host(policy: Path, sshd: Sshd, tmp_path: Path):
    _enrol_pending_host(policy, sshd)
    _change_enroller_to_dana(policy)
    before = _read_files(policy)
    read = _read_fingerprint_on_host(tmp_path, make_key().public)
    result = run_keyturn_with_policy(policy, "inventory", "confirm", "nas2", read)
    assert (result.returncode, result.stdout) == (1, "")
    assert "another machine intercepts the connection" in result.stderr
    assert _read_files(policy) == before


@pytest.mark.real
def test_confirm_adds_no_host_that_would_invalidate_the_policy(
    policy: Path, sshd: Sshd, tmp_path: Path
):
    _enrol_pending_host(policy, sshd)
    _change_enroller_to_dana(policy)
    waiting = pending_hosts.list_pending_hosts(policy)
    entry = {**waiting["nas2"].entry, "jump": "gone1"}
    pending_hosts.store_pending_hosts(
        policy, {"nas2": waiting["nas2"].model_copy(update={"entry": entry})}
    )
    before = _read_files(policy)
    result = run_keyturn_with_policy(
        policy, "inventory", "confirm", "nas2", _read_fingerprint_on_host(tmp_path, sshd.host_key)
    )
    assert result.returncode == 1
    assert "jump gone1 is not in the inventory" in result.stderr
    assert _read_files(policy) == before


def _invoke_without_write_access(policy: Path, *words: str) -> Result:
    """Type it where the policy directory can be read alone, for root too."""
    policy.chmod(0o555)
    try:
        with _drop_root_capabilities():
            return CliRunner(env={"KEYTURN_POLICY": str(policy)}).invoke(main, words)
    finally:
        policy.chmod(0o755)


@contextmanager
def _drop_root_capabilities() -> Generator[None]:
    """Drop root's capabilities CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH for a while."""
    libc = ctypes.CDLL(None)
    # _LINUX_CAPABILITY_VERSION_3 and this thread; effective, permitted, inheritable, twice.
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    before, dropped = (ctypes.c_uint32 * 6)(), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, before) == 0
    dropped[:] = [before[0] & ~0b110, *before[1:]]
    assert libc.capset(header, dropped) == 0
    try:
        yield
    finally:
        assert libc.capset(header, before) == 0


@pytest.mark.real
def test_confirm_prints_the_checked_entry_without_write_access(
    policy: Path, sshd: Sshd, tmp_path: Path
):
    _enrol_pending_host(policy, sshd)
    _change_enroller_to_dana(policy)
    before = _read_files(policy)
    read = _read_fingerprint_on_host(tmp_path, sshd.host_key)
    result = _invoke_without_write_access(policy, "inventory", "confirm", "nas2", read)
    assert result.exit_code == 5, result.stderr
    assert "Errno" not in result.stderr
    inventory = policy / "inventory.yaml"
    assert (
        f"nas2 was not added: {inventory} cannot be written (Permission denied)" in result.stderr
    )
    assert (
        "Add it below `hosts:` in inventory.yaml and delete nas2 from enrolling.yaml"
        in result.stderr
    )
    assert _read_files(policy) == before
    assert "requested by dana on admin7, confirmed by " in result.stdout
    made = YAML(typ="safe").load(result.stdout)
    assert made["hosts"]["nas2"]["host_key"] == sshd.host_key
    # As somebody with write access adds it, it is valid.
    data = YAML(typ="safe").load(inventory)
    data["hosts"] = {**(data["hosts"] or {}), **made["hosts"]}
    with inventory.open("w") as file:
        YAML().dump(data, file)
    assert load_policy(policy).inventory["nas2"].host_key == sshd.host_key
    # And is not written a second time.
    again = run_keyturn_with_policy(policy, "inventory", "confirm", "nas2", read)
    assert again.returncode == 1
    assert "nas2 is already in inventory.yaml: delete its entry from enrolling" in again.stderr


@pytest.mark.real
def test_confirm_without_write_access_reports_unwritten_in_json(
    policy: Path, sshd: Sshd, tmp_path: Path
):
    _enrol_pending_host(policy, sshd)
    _change_enroller_to_dana(policy)
    read = _read_fingerprint_on_host(tmp_path, sshd.host_key)
    result = _invoke_without_write_access(policy, "inventory", "confirm", "nas2", read, "--json")
    data = json.loads(result.stdout)
    assert (result.exit_code, data["written"]) == (5, False)
    assert data["entry"] == dict(pending_hosts.list_pending_hosts(policy)["nas2"].entry)


@pytest.mark.real
def test_confirm_without_write_access_still_checks_the_whole_policy(
    policy: Path, sshd: Sshd, tmp_path: Path
):
    _enrol_pending_host(policy, sshd)
    _change_enroller_to_dana(policy)
    one = pending_hosts.list_pending_hosts(policy)["nas2"]
    entry = {**one.entry, "jump": "gone1"}
    pending_hosts.store_pending_hosts(policy, {"nas2": one.model_copy(update={"entry": entry})})
    read = _read_fingerprint_on_host(tmp_path, sshd.host_key)
    result = _invoke_without_write_access(policy, "inventory", "confirm", "nas2", read)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "jump gone1 is not in the inventory" in result.stderr


@pytest.mark.real
def test_enrol_prints_the_pending_entry_without_write_access(policy: Path, sshd: Sshd):
    before = _read_files(policy)
    place = ("nas2", sshd.address, "--port", str(sshd.port))
    result = _invoke_without_write_access(
        policy, "inventory", "enrol", *place, "--area", "storage"
    )
    assert result.exit_code == 5, result.stderr
    assert "Errno" not in result.stderr
    assert "nas2 was not stored as pending" in result.stderr
    assert f"Add the lines above to {pending_hosts.PENDING_HOSTS_FILE}" in result.stderr
    assert "A\nsecond person must confirm it" not in result.stderr
    assert _read_files(policy) == before
    lines = result.stderr[result.stderr.index("\nnas2:\n") :].partition("keyturn: ")[0]
    (policy / pending_hosts.PENDING_HOSTS_FILE).write_text(lines)
    assert pending_hosts.list_pending_hosts(policy)["nas2"].entry["host_key"] == sshd.host_key


@pytest.mark.real
def test_unreadable_file_of_pending_hosts_is_reported(policy: Path):
    (policy / pending_hosts.PENDING_HOSTS_FILE).write_text("")
    (policy / pending_hosts.PENDING_HOSTS_FILE).chmod(0)
    result = _invoke_without_write_access(policy, "inventory", "confirm", "nas2", WHOLE)
    assert (result.exit_code, result.stdout) == (1, "")
    assert (
        f"{policy / pending_hosts.PENDING_HOSTS_FILE}: Permission denied: use a login that has"
        in result.stderr
    )
    assert "Errno" not in result.stderr


ALEX = LocalUser(login="alex", uid=1000, machine="admin1")


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (ALEX, True),
        (LocalUser(login="alex", uid=7, machine="admin2"), True),
        (LocalUser(login="deploy", uid=1000, machine="admin1"), True),
        (LocalUser(login="dana", uid=1000, machine="admin2"), False),
        (LocalUser(login="dana", uid=1001, machine="admin1"), False),
    ],
)
def test_local_users_with_the_same_login_or_uid_count_as_one_person(other: LocalUser, same: bool):
    assert ALEX.is_same_person(other) is same


def test_enrolment_keeps_hosts_and_comments_of_the_inventory(policy: Path):
    file = policy / "inventory.yaml"
    key = make_key().public
    text = (
        "# Ours.\n"
        "defaults:\n  user: 'keyturn'\n"
        "hosts:\n  # The first.\n  web1:\n    address: 192.0.2.1\n"
        f"    host_key: {key}\n    area: web\n    tags: [web, nginx]  # both\n"
    )
    file.write_text(text)
    entry = {"address": "192.0.2.2", "host_key": make_key().public, "area": "web"}
    one = PendingHost(requested_by=ALEX, fingerprint="SHA256:x", entry=entry)
    dana = LocalUser(login="dana", uid=1, machine="admin2")
    pending_hosts.write_inventory(
        policy, pending_hosts.add_host_to_inventory_text(policy, "web2", one, dana)
    )
    assert file.read_text().startswith(text)
    assert list(load_policy(policy).inventory.hosts) == ["web1", "web2"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # A host that is commented out, and another key of the file.
        ("hosts:\n  web1: {WEB1}\n", "#  lb1:\n#    area: web\n\n# One service.\nredundant: []\n"),
        ("hosts:\n", "#  lb1:\n#    area: web\n\nredundant: []\n"),
        ("hosts:\n    web1:\n        {LONG}\n", "\n# The end.\n"),
    ],
)
def test_enrolled_host_is_written_behind_the_last_one(policy: Path, before: str, after: str):
    """Commented lines below may be used again, and belong to what follows."""
    file = policy / "inventory.yaml"
    fields = f"address: 192.0.2.1, host_key: '{make_key().public}', area: web"
    before = before.replace("{WEB1}", f"{{{fields}}}")
    before = before.replace("{LONG}", fields.replace(", ", "\n        "))
    file.write_text(before + after)
    entry = {"address": "192.0.2.2", "host_key": make_key().public, "area": "web"}
    one = PendingHost(requested_by=ALEX, fingerprint="SHA256:x", entry=entry)
    text = pending_hosts.add_host_to_inventory_text(policy, "web2", one, ALEX)
    assert text.startswith(before)
    assert text.endswith(after)
    indent = " " * (4 if "        address" in before else 2)
    added = text.removeprefix(before).removesuffix(after)
    assert added.startswith(f"{indent}# SHA256:x: requested and confirmed by")
    assert f"\n{indent}web2:\n{indent}  address: 192.0.2.2\n" in added


@pytest.mark.parametrize("hosts", ["", "hosts: {}\n", "hosts: {web1: {WEB1}}\n"])
def test_enrolled_host_is_added_to_hosts_in_braces(policy: Path, hosts: str):
    fields = f"address: 192.0.2.1, host_key: '{make_key().public}', area: web"
    (policy / "inventory.yaml").write_text(
        f"defaults: {{user: keyturn}}\n{hosts.replace('{WEB1}', f'{{{fields}}}')}"
    )
    entry = {"address": "192.0.2.2", "host_key": make_key().public, "area": "web"}
    one = PendingHost(requested_by=ALEX, fingerprint="SHA256:x", entry=entry)
    text = pending_hosts.add_host_to_inventory_text(policy, "web2", one, ALEX)
    assert "web2:\n    address: 192.0.2.2\n" in text


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("lb1.example.com", ("lb1.example.com", None)),
        ("lb1.example.com:2222", ("lb1.example.com", 2222)),
        ("192.0.2.1:22", ("192.0.2.1", 22)),
        ("2001:db8::1", ("2001:db8::1", None)),
        ("[2001:db8::1]:2222", ("2001:db8::1", 2222)),
        ("lb1:ssh", ("lb1:ssh", None)),
    ],
)
def test_address_to_enrol_may_have_a_port(typed: str, meant: tuple[str, int | None]):
    assert split_address(typed) == meant


@pytest.mark.parametrize("typed", ["lb1:0", "lb1:65536", "lb1:999999999"])
def test_port_of_an_address_to_enrol_must_exist(typed: str):
    with pytest.raises(InvalidCandidateError, match="the port must be from 1 to 65535"):
        split_address(typed)


@pytest.mark.real
@pytest.mark.parametrize(
    ("kinds", "shown"),
    [
        (("rsa", "ecdsa", "ed25519"), "ed25519"),
        (("rsa", "ecdsa"), "ecdsa"),
        (("rsa",), "rsa"),
    ],
)
def test_enrol_reads_the_strongest_host_key(kinds: Sequence[KeyType], shown: KeyType):
    with Sshd(host_key_types=kinds) as sshd:
        key = fetch_host_key(HostCandidate("nas2", sshd.address, sshd.port))
        assert key == sshd.host_keys[shown].public
        assert sshd.accepted == 0


@pytest.mark.real
def test_enrol_rejects_an_existing_host_and_notes_a_shared_host_key(fleet: LoopbackFleet):
    lb1, web1 = fleet.hosts["lb1"], fleet.hosts["web1"]
    result = run_keyturn_with_policy(
        *(fleet.directory, "inventory", "enrol", "web1", lb1.address),
        *("--port", str(lb1.port), "--area", "edg"),
    )
    assert result.returncode == 1
    assert not (fleet.directory / "enrolling.yaml").exists()
    assert "web1 is already in the inventory, with another key, SHA256:" in result.stderr
    assert "lb1 has the same key" in result.stderr
    assert "area edg is not in areas.yaml, which has edge, web, storage" in result.stderr
    assert web1.connections == 0


@pytest.mark.real
def test_enrol_prints_the_host_key_although_the_policy_is_invalid(tmp_path: Path, sshd: Sshd):
    place = ("nas2", sshd.address, "--port", str(sshd.port))
    result = run_keyturn_with_policy(tmp_path, "inventory", "enrol", *place)
    assert result.returncode == 1
    assert "cannot compare with the policy directory" in result.stderr
    assert "# area: add the area" in result.stdout


@pytest.mark.real
@pytest.mark.parametrize(
    ("platform", "console"),
    [
        ("cisco_ios", "show ip ssh "),
        ("dell_powerconnect", "show crypto key mypubkey "),
        ("hp_procurve", "show crypto host-public-key "),
        ("frr", "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"),
    ],
)
def test_network_device_is_enrolled_with_its_platform(
    policy: Path, tmp_path: Path, platform: str, console: str
):
    with ScriptedDevice() as device:
        place = ("sw7", device.address, "--port", str(device.port), "--platform", platform)
        result = run_keyturn_with_policy(policy, "inventory", "enrol", *place, "--area", "storage")
        assert device.logins == 0
    assert result.returncode == 0, result.stderr
    made = Inventory.model_validate(YAML(typ="safe").load(result.stdout))["sw7"]
    assert (made.platform, made.host_key) == (platform, device.host_key.public)
    assert console in result.stderr
    _change_enroller_to_dana(policy)
    read = _read_fingerprint_on_host(tmp_path, device.host_key.public)
    confirmed = run_keyturn_with_policy(policy, "inventory", "confirm", "sw7", read)
    assert confirmed.returncode == 0, confirmed.stderr
    assert load_policy(policy).inventory["sw7"].platform == platform


def test_enrol_accepts_the_ssh_platforms_of_the_inventory():
    # A device without SSH has no key to enrol.
    assert (*PLATFORMS, "snmp", "hp_msa") == get_args(Platform)


def test_enrol_reports_a_server_that_is_not_an_ssh_server():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            caller, _ = listener.accept()
            with caller:
                caller.sendall(b"220 mail ready\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        address, port = listener.getsockname()
        with pytest.raises(
            UnreachableError, match="is not an SSH server, it sent '220 mail ready"
        ):
            fetch_host_key(HostCandidate("nas2", address, port))
        thread.join()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("Nas2", "192.0.2.1"), "name: must be a name of lower-case letters, digits and hyphens"),
        (("nas2", "-x"), "No such option"),
        (("nas2", "--", "-x"), "address: must be a host name or an IP address"),
        (("nas2", "192.0.2.1", "--user", "A B"), "user: must be a user name on the host, such as"),
        (("nas2", "192.0.2.1", "--port", "0"), "not in the range"),
        (("nas2", "192.0.2.1", "--tags", "a b"), "tags"),
        (("nas2", "192.0.2.1", "--platform", "nxos"), "'nxos' is not one of 'linux', 'cisco_ios'"),
    ],
)
def test_enrol_rejects_invalid_options_before_it_connects(
    policy: Path, words: tuple[str, ...], says: str
):
    result = run_keyturn_with_policy(policy, "inventory", "enrol", *words)
    assert result.returncode == 2
    assert result.stdout == ""
    assert says in result.stderr
    assert "Traceback" not in result.stderr


HALF = "SHA256:" + "A" * 42
WHOLE = "SHA256:" + "A" * 43


@pytest.mark.parametrize("text", ["", "SHA256:", HALF, WHOLE + "A", f"{WHOLE} {WHOLE}", "A" * 43])
def test_text_without_exactly_one_fingerprint_is_rejected(text: str):
    with pytest.raises(InvalidFingerprintError):
        find_fingerprint(text)


@pytest.mark.parametrize("text", [WHOLE, f"{WHOLE}=", f"256 {WHOLE} root@nas2 (ED25519)"])
def test_fingerprint_is_found_in_the_output_of_ssh_keygen(text: str):
    assert find_fingerprint(text) == WHOLE


def test_enrol_candidate_that_the_inventory_rejects_is_reported():
    with pytest.raises(InvalidCandidateError, match="user: "):
        HostCandidate("nas2", "192.0.2.1", user="Root!").build_host(make_key().public)
