"""HTTPS calls to a BMC: a server that can return anything, and the emulator of sushy-tools."""

import ssl
import threading
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from connectors.api_client import ApiClient
from connectors.command import ApiCall, RunHooks
from connectors.errors import (
    CommandError,
    FencedError,
    HostError,
    HostKeyMismatchError,
    LoginError,
    OutputLimitError,
    SetupError,
    UnknownOutcomeError,
    UnreachableError,
)
from connectors.inventory import Host, Inventory
from tests.playground.bmc import USER, write_password
from tests.playground.fixed_response_server import FixedResponseServer, Reply, build_response
from tests.scripted_fleet import build_inventory

SYSTEM = "/redfish/v1/Systems/1"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
OFF = ApiCall(
    RESET, "POST", '{"ResetType": "ForceOff"}', watched_path=SYSTEM, power_state="Off", deadline=5
)
BASIC = "Authorization: Basic"


@pytest.fixture
def bmc(tmp_path: Path) -> Iterator[FixedResponseServer]:
    write_password(tmp_path)
    with FixedResponseServer(tmp_path, names=("127.0.0.1",)) as mirror:
        mirror.replies = {SYSTEM: document('{"PowerState": "Off"}'), RESET: document("")}
        yield mirror


@pytest.fixture
def client(tmp_path: Path) -> ApiClient:
    return ApiClient(tmp_path, poll_seconds=0.01)


def document(body: str, status: str = "200 OK", headers: Mapping[str, str] | None = None) -> bytes:
    return build_response(body.encode(), kind="application/json", status=status, headers=headers)


def make_host(bmc: FixedResponseServer, **fields: object) -> Host:
    entry = build_inventory("nas1")["nas1"].model_dump(exclude={"name"})
    reached = {"address": "127.0.0.1", "port": bmc.port, "user": USER}
    entry["bmc"] = {**reached, "password_file": "bmc.password", **fields}
    return Inventory.model_validate({"hosts": {"nas1": entry}})["nas1"]


def by_ca(bmc: FixedResponseServer) -> Host:
    return make_host(bmc, ca=bmc.authority.name)


def get_fingerprint(directory: Path) -> str:
    chain = (directory / "server.pem").read_text()
    leaf = chain[chain.index("-----BEGIN CERTIFICATE") :]
    return sha256(ssl.PEM_cert_to_DER_cert(leaf)).digest().hex(":").upper()


def test_bmc_resource_is_read_when_the_ca_signed_its_certificate(
    bmc: FixedResponseServer, client: ApiClient
):
    assert client.call(by_ca(bmc), ApiCall(SYSTEM)).out == '{"PowerState": "Off"}'
    assert f"{BASIC} " in bmc.heads[0]


def test_bmc_resource_is_read_when_its_certificate_is_pinned(
    bmc: FixedResponseServer, client: ApiClient, tmp_path: Path
):
    pinned = make_host(bmc, certificate=get_fingerprint(tmp_path))
    assert client.call(pinned, ApiCall(SYSTEM)).out == '{"PowerState": "Off"}'


def test_bmc_password_is_not_sent_to_a_bmc_with_another_certificate(
    bmc: FixedResponseServer, client: ApiClient, tmp_path: Path
):
    shown = get_fingerprint(tmp_path)
    other_first = "11:" if shown.startswith("00:") else "00:"
    with pytest.raises(HostKeyMismatchError, match=shown):
        client.call(make_host(bmc, certificate=other_first + shown[3:]), OFF)
    other = tmp_path / "other"
    other.mkdir()
    with FixedResponseServer(other) as stranger, pytest.raises(HostKeyMismatchError):
        client.call(make_host(bmc, ca=f"other/{stranger.authority.name}"), OFF)
    assert bmc.heads == []


def test_power_change_is_sent_once_and_the_power_state_is_awaited(
    bmc: FixedResponseServer, client: ApiClient
):
    states = iter(["On", "PoweringOff", "Off"])
    bmc.replies[SYSTEM] = lambda tls: tls.sendall(document(f'{{"PowerState": "{next(states)}"}}'))
    client.call(by_ca(bmc), OFF)
    assert bmc.asked == [RESET, SYSTEM, SYSTEM, SYSTEM]


def test_power_change_fails_when_the_power_state_is_not_reached(
    bmc: FixedResponseServer, client: ApiClient
):
    bmc.replies[SYSTEM] = document('{"PowerState": "On"}')
    soon = ApiCall(RESET, "POST", OFF.body, watched_path=SYSTEM, power_state="Off", deadline=1)
    with pytest.raises(CommandError, match="accepted the request, and the power is 'On', not Off"):
        client.call(by_ca(bmc), soon)


def test_bmc_call_is_not_sent_after_the_lease_is_lost(bmc: FixedResponseServer, client: ApiClient):
    def refuse() -> None:
        raise FencedError("another worker has taken over")

    with pytest.raises(FencedError):
        client.call(by_ca(bmc), OFF, RunHooks(before_send=refuse))
    assert bmc.asked == []


def hang_up(tls: ssl.SSLSocket) -> None:
    tls.close()


def flood(tls: ssl.SSLSocket) -> None:
    tls.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while threading.main_thread().is_alive():
        tls.sendall(b"x" * 65536)


_SAID = '{"error": {"@Message.ExtendedInfo": [{"Message": "The chassis is open."}]}}'


@pytest.mark.parametrize(
    ("reply", "error", "words"),
    [
        (document("", "401 Unauthorized"), LoginError, "refuses keyturn"),
        (document("", "403 Forbidden"), LoginError, "give the login the right"),
        (document(_SAID, "400 Bad Request"), CommandError, "status 400: 'The chassis is open.'"),
        (document("[1]", "500 Oh"), CommandError, r"status 500: '\[1\]'"),
        (document("", "503 Busy"), UnreachableError, "busy"),
        (document("", "308 Moved", {"Location": "/x"}), CommandError, "status 308"),
        (hang_up, UnknownOutcomeError, "may or may not have been carried out"),
        (flood, OutputLimitError, "returned more than"),
    ],
)
def test_failed_power_change_is_not_repeated(
    bmc: FixedResponseServer, client: ApiClient, reply: Reply, error: type[HostError], words: str
):
    bmc.replies[RESET] = reply
    with pytest.raises(error, match=words) as raised:
        client.call(by_ca(bmc), OFF)
    assert type(raised.value) is error
    assert bmc.asked == [RESET]


PATCH = ApiCall(SYSTEM, "PATCH", '{"Boot": {}}')
FAILED = document("", "412 Precondition Failed")


@pytest.mark.parametrize("refused", ["428 Precondition Required", "412 Precondition Failed"])
def test_bmc_that_requires_an_etag_gets_if_match_with_the_one_read(
    bmc: FixedResponseServer, client: ApiClient, refused: str
):
    read = document('{"@odata.etag": "W/\\"7\\""}')
    replies = iter([document("", refused), read, document("")])
    bmc.replies[SYSTEM] = lambda tls: tls.sendall(next(replies))
    client.call(by_ca(bmc), PATCH)
    assert 'If-Match: W/"7"\r\n' in bmc.heads[2]


def test_bmc_that_compares_etags_strongly_gets_the_strong_form(
    bmc: FixedResponseServer, client: ApiClient
):
    read = document("{}", headers={"ETag": 'W/"7"'})
    replies = iter([FAILED, read, FAILED, document("")])
    bmc.replies[SYSTEM] = lambda tls: tls.sendall(next(replies))
    client.call(by_ca(bmc), PATCH)
    assert 'If-Match: "7"\r\n' in bmc.heads[3]


def test_change_of_a_bmc_fails_when_its_resource_keeps_changing(
    bmc: FixedResponseServer, client: ApiClient
):
    replies = iter([FAILED, document('{"@odata.etag": "\\"7\\""}'), FAILED])
    bmc.replies[SYSTEM] = lambda tls: tls.sendall(next(replies))
    with pytest.raises(CommandError, match=r"did nothing, because .* with a new plan"):
        client.call(by_ca(bmc), PATCH)
    assert len(bmc.asked) == 3


def test_power_change_that_requires_an_etag_names_the_version_of_the_system(
    bmc: FixedResponseServer, client: ApiClient
):
    replies = iter([FAILED, document("")])
    bmc.replies[RESET] = lambda tls: tls.sendall(next(replies))
    bmc.replies[SYSTEM] = document('{"@odata.etag": "\\"7\\"", "PowerState": "Off"}')
    client.call(by_ca(bmc), OFF)
    assert bmc.asked == [RESET, SYSTEM, RESET, SYSTEM]
    assert 'If-Match: "7"\r\n' in bmc.heads[2]


def test_power_state_of_null_is_neither_on_nor_off(bmc: FixedResponseServer, client: ApiClient):
    states = iter(['{"PowerState": null}', "{}", '{"PowerState": "Off"}'])
    bmc.replies[SYSTEM] = lambda tls: tls.sendall(document(next(states)))
    client.call(by_ca(bmc), OFF)
    assert len(bmc.asked) == 4


def test_bmc_with_a_closed_port_is_unreachable_and_a_missing_ca_file_is_named(
    bmc: FixedResponseServer, client: ApiClient
):
    with pytest.raises(UnreachableError, match="cannot be reached by HTTPS"):
        client.call(make_host(bmc, ca=bmc.authority.name, port=1), OFF)
    with pytest.raises(SetupError, match=r"CA file .*missing.pem"):
        client.call(make_host(bmc, ca="missing.pem"), OFF)
