"""Arrays by their XML API: from answers in the form of HP's reference guides, played over TLS."""

from collections.abc import Iterator
from hashlib import md5, sha256
from pathlib import Path

import pytest

from bot.hosts.live_check import check_host
from connectors import msa
from connectors.api_client import ApiClient
from connectors.command import ApiCall, Shell
from connectors.errors import CommandError, LoginError, ParseError, SetupError
from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.msa_xml import parse_login, parse_objects
from connectors.ssh_pool import SshPool
from runbooks.msa_show import ShowMsa
from tests.playground.bmc import PASSWORD, USER, write_password
from tests.playground.mirror import Mirror, answer

ANSWERS = Path(__file__).parent.parent / "connectors" / "answers" / "msa"
SHOW = ShowMsa.model_validate({"host": "msa1"})
PARTS = ("system", "controllers", "disks", "volumes", "controller-statistics")
KEY = "d49da7b8b4c2b8b0a7b49ba7ee3d0a4f"
LOGIN = f"{USER}_{PASSWORD}".encode()


def recorded(name: str) -> str:
    return (ANSWERS / f"{name}.xml").read_text()


def document(name: str) -> bytes:
    return answer(recorded(name).encode(), kind="text/xml")


@pytest.fixture
def array(tmp_path: Path) -> Iterator[Mirror]:
    write_password(tmp_path)
    with Mirror(tmp_path, names=("127.0.0.1",)) as mirror:
        paths = {f"/api/show/{part}": document(part) for part in PARTS}
        login = {f"/api/login/{sha256(LOGIN).hexdigest()}": document("login")}
        mirror.replies = {**paths, **login, "/api/show/events/last/10": document("events")}
        mirror.replies["/api/exit"] = answer(b"", kind="text/xml")
        yield mirror


def reach(array: Mirror, tmp_path: Path, **fields: object) -> Fleet:
    login = {"user": USER, "password_file": "bmc.password", "ca": array.authority.name, **fields}
    place = {"address": "127.0.0.1", "port": array.port, "platform": "hp_msa", "area": "storage"}
    hosts = {"msa1": {**place, "tags": ["msa"], "msa": login}}
    inventory = Inventory.model_validate({"hosts": hosts})
    return Fleet(inventory, SshPool(tmp_path, api_client=ApiClient(tmp_path)))


def test_an_array_is_shown_with_its_failed_disk_and_the_advice(array: Mirror, tmp_path: Path):
    report = SHOW.report(SHOW.read(reach(array, tmp_path).run_query))
    assert report.summary == (
        "msa1 (HP MSA 2040 SAN): health Degraded, 2 controllers, 2 disks, 1 volumes"
    )
    assert report.findings == [
        "the system: Degraded: A subcomponent of this component is unhealthy",
        "disk 1.2: Fault: The disk has failed. The array recommends: - Replace the disk.",
    ]
    assert report.table
    assert list(report.table.rows) == [
        ("Controller", "A", "OK", "Operational, firmware GLS210R04-01"),
        ("Controller", "B", "OK", "Operational, firmware GLS210R04-01"),
        ("Load", "controller_A", "", "CPU 3 %, 512 IOPS, 41.4MB/s"),
        ("Disk", "1.1", "OK", "600.1GB, SEAGATE ST3600057SS, dgA01"),
        ("Disk", "1.2", "Fault", "600.1GB, SEAGATE ST3600057SS, dgA01"),
        ("Volume", "Vol0001", "OK", "99.9GB, A"),
        (
            *("Event", "2021-11-12 08:16:20", "ERROR"),
            "A disk that was part of a disk group is down. (disk: channel: 0, ID: 1, SN: <b>)",
        ),
    ]


def test_each_call_has_a_session_that_is_closed_and_never_the_password(
    array: Mirror, tmp_path: Path
):
    reach(array, tmp_path).run_query("msa1", msa.query("disks"))
    login, show, leave = array.heads
    assert f"sessionKey: {KEY}\r\n" in show
    assert f"sessionKey: {KEY}\r\n" in leave
    assert "Authorization" not in login + show + leave
    assert PASSWORD not in login


def test_old_firmware_gets_the_digest_that_the_inventory_names(array: Mirror, tmp_path: Path):
    old = f"/api/login/{md5(LOGIN, usedforsecurity=False).hexdigest()}"
    array.replies[old] = document("login")
    reach(array, tmp_path, digest="md5").run_query("msa1", msa.query("disks"))
    assert array.asked[0] == old


def test_a_refused_login_says_what_to_correct(array: Mirror, tmp_path: Path):
    array.replies[f"/api/login/{sha256(LOGIN).hexdigest()}"] = document("login-refused")
    with pytest.raises(LoginError, match="refuses keyturn"):
        reach(array, tmp_path).run_query("msa1", msa.query("disks"))
    assert len(array.asked) == 1


def test_inventory_check_reads_the_array_and_reports_a_refused_login(
    array: Mirror, tmp_path: Path
):
    assert check_host(reach(array, tmp_path), "msa1").is_healthy
    array.replies[f"/api/login/{sha256(LOGIN).hexdigest()}"] = document("login-refused")
    refused = check_host(reach(array, tmp_path), "msa1")
    assert (refused.reachable, refused.key, refused.login) == (True, True, False)


def test_an_array_runs_no_command_and_its_identity_is_its_certificate(
    array: Mirror, tmp_path: Path
):
    fleet = reach(array, tmp_path)
    with pytest.raises(SetupError, match="msa1 is an array without a shell"):
        fleet.resolve_command("msa1", Shell(("id",)))
    assert fleet.inventory["msa1"].fingerprint == f"127.0.0.1:{array.port} authority.pem"


BOMB = '<!DOCTYPE RESPONSE [<!ENTITY a "aaaa">]><RESPONSE>&a;</RESPONSE>'


@pytest.mark.parametrize("text", ["", "<html/>", "{}", "<RESPONSE>", BOMB, "<a>" * 10_000])
def test_invalid_api_answer_is_an_error(text: str):
    with pytest.raises(ParseError, match="not an answer of its API"):
        parse_objects(text)


def test_a_command_that_failed_is_an_error_with_the_words_of_the_array():
    with pytest.raises(CommandError, match="'Authentication Unsuccessful'"):
        parse_objects(recorded("login-refused"))


def test_a_login_without_a_key_is_refused():
    with pytest.raises(CommandError, match="Invalid user"):
        parse_login(recorded("login").replace(KEY, "Invalid user"))


def test_entries_of_arrays_without_a_certificate_or_with_a_key_are_refused():
    place = {"address": "192.0.2.1", "platform": "hp_msa", "area": "storage"}
    for entry in ({}, {"msa": {"user": "u", "password_file": "p"}}, {"jump": "gate1"}):
        with pytest.raises(ValueError, match="msa"):
            Inventory.model_validate({"hosts": {"msa1": {**place, **entry}}})


def test_a_call_is_a_path_of_the_array():
    assert msa.query("disks").command == ApiCall("/api/show/disks")
