"""Arrays by their XML API, with answers as in HP's reference guides, served over HTTPS."""

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
from tests.playground.fixed_response_server import FixedResponseServer, build_response

ANSWERS = Path(__file__).parent.parent / "connectors" / "answers" / "msa"
SHOW = ShowMsa.model_validate({"host": "msa1"})
PARTS = ("system", "controllers", "disks", "volumes", "controller-statistics")
KEY = "d49da7b8b4c2b8b0a7b49ba7ee3d0a4f"
LOGIN = f"{USER}_{PASSWORD}".encode()


def recorded(name: str) -> str:
    return (ANSWERS / f"{name}.xml").read_text()


def document(name: str) -> bytes:
    return build_response(recorded(name).encode(), kind="text/xml")


@pytest.fixture
def array(tmp_path: Path) -> Iterator[FixedResponseServer]:
    write_password(tmp_path)
    with FixedResponseServer(tmp_path, names=("127.0.0.1",)) as mirror:
        paths = {f"/api/show/{part}": document(part) for part in PARTS}
        login = {f"/api/login/{sha256(LOGIN).hexdigest()}": document("login")}
        mirror.replies = {**paths, **login, "/api/show/events/last/10": document("events")}
        mirror.replies["/api/exit"] = build_response(b"", kind="text/xml")
        yield mirror


def reach(array: FixedResponseServer, tmp_path: Path, **fields: object) -> Fleet:
    login = {"user": USER, "password_file": "bmc.password", "ca": array.authority.name, **fields}
    place = {"address": "127.0.0.1", "port": array.port, "platform": "hp_msa", "area": "storage"}
    hosts = {"msa1": {**place, "tags": ["msa"], "msa": login}}
    inventory = Inventory.model_validate({"hosts": hosts})
    return Fleet(inventory, SshPool(tmp_path, api_client=ApiClient(tmp_path)))


def test_msa_show_reports_a_failed_disk_with_the_advice_of_the_array(
    array: FixedResponseServer, tmp_path: Path
):
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


def test_msa_call_uses_a_session_that_is_closed_and_sends_no_password(
    array: FixedResponseServer, tmp_path: Path
):
    reach(array, tmp_path).run_query("msa1", msa.query("disks"))
    login, show, leave = array.heads
    assert f"sessionKey: {KEY}\r\n" in show
    assert f"sessionKey: {KEY}\r\n" in leave
    assert "Authorization" not in login + show + leave
    assert PASSWORD not in login


def test_msa_login_uses_the_digest_of_the_inventory(array: FixedResponseServer, tmp_path: Path):
    old = f"/api/login/{md5(LOGIN, usedforsecurity=False).hexdigest()}"
    array.replies[old] = document("login")
    reach(array, tmp_path, digest="md5").run_query("msa1", msa.query("disks"))
    assert array.asked[0] == old


def test_msa_login_that_is_refused_says_what_to_correct(
    array: FixedResponseServer, tmp_path: Path
):
    array.replies[f"/api/login/{sha256(LOGIN).hexdigest()}"] = document("login-refused")
    with pytest.raises(LoginError, match="refuses keyturn"):
        reach(array, tmp_path).run_query("msa1", msa.query("disks"))
    assert len(array.asked) == 1


def test_inventory_check_reads_an_msa_and_reports_a_refused_login(
    array: FixedResponseServer, tmp_path: Path
):
    assert check_host(reach(array, tmp_path), "msa1").is_healthy
    array.replies[f"/api/login/{sha256(LOGIN).hexdigest()}"] = document("login-refused")
    refused = check_host(reach(array, tmp_path), "msa1")
    assert (refused.reachable, refused.key, refused.login) == (True, True, False)


def test_msa_runs_no_shell_command_and_is_identified_by_its_certificate(
    array: FixedResponseServer, tmp_path: Path
):
    fleet = reach(array, tmp_path)
    with pytest.raises(SetupError, match="msa1 is an array without a shell"):
        fleet.resolve_command("msa1", Shell(("id",)))
    assert fleet.inventory["msa1"].fingerprint == f"127.0.0.1:{array.port} authority.pem"


BOMB = '<!DOCTYPE RESPONSE [<!ENTITY a "aaaa">]><RESPONSE>&a;</RESPONSE>'


@pytest.mark.parametrize("text", ["", "<html/>", "{}", "<RESPONSE>", BOMB, "<a>" * 10_000])
def test_invalid_msa_api_answer_is_a_parse_error(text: str):
    with pytest.raises(ParseError, match="not an answer of its API"):
        parse_objects(text)


def test_failed_msa_command_shows_the_message_of_the_array():
    with pytest.raises(CommandError, match="'Authentication Unsuccessful'"):
        parse_objects(recorded("login-refused"))


def test_msa_login_without_a_session_key_is_an_error():
    with pytest.raises(CommandError, match="Invalid user"):
        parse_login(recorded("login").replace(KEY, "Invalid user"))


def test_inventory_refuses_msa_entries_without_login_or_with_a_jump_host():
    place = {"address": "192.0.2.1", "platform": "hp_msa", "area": "storage"}
    for entry in ({}, {"msa": {"user": "u", "password_file": "p"}}, {"jump": "gate1"}):
        with pytest.raises(ValueError, match="msa"):
            Inventory.model_validate({"hosts": {"msa1": {**place, **entry}}})


def test_msa_query_is_a_path_of_the_array_api():
    assert msa.query("disks").command == ApiCall("/api/show/disks")


def test_msa_show_reports_the_rest_when_the_array_lacks_one_command(
    array: FixedResponseServer, tmp_path: Path
):
    for part in ("controller-statistics", "disks"):
        array.replies[f"/api/show/{part}"] = build_response(b"no such page", kind="text/plain")
    report = SHOW.report(SHOW.read(reach(array, tmp_path).run_query))
    assert report.summary.startswith("msa1 (HP MSA 2040 SAN): health Degraded, 2 controllers")
    assert [finding.partition(":")[0] for finding in report.findings] == [
        "the disks could not be read",
        "the load could not be read",
        "the system",
    ]
