"""From “approval needed” on a telephone to a changed host: two taps and a fingerprint."""

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from bot.hosts.host_files import Signer, format_floor, format_signers
from bot.model.run import State
from tests.acceptance.browsing import Server, open_window
from tests.acceptance.test_signing_page_in_browser import add_passkey_device, make_passkey
from tests.bot.signing.ssh_key import SshKey
from tests.playground.enrolled import EnrolledLogins
from tests.playground.enrolled_service import (
    HOST,
    EnrolledService,
    create_keys,
    open_enrolled_host,
    open_enrolled_service,
)

pytestmark = pytest.mark.real
TELEPHONE = {"width": 360, "height": 740}


@pytest.fixture
def keys(tmp_path: Path) -> Mapping[str, SshKey]:
    directory = tmp_path / "keys"
    directory.mkdir()
    return create_keys(directory)


@pytest.fixture
def host(keys: Mapping[str, SshKey]) -> Iterator[EnrolledLogins]:
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root may give a server logins of its own")
    with open_enrolled_host(keys) as host:
        yield host


@pytest.fixture
def service(
    tmp_path: Path, host: EnrolledLogins, keys: Mapping[str, SshKey]
) -> Iterator[EnrolledService]:
    with open_enrolled_service(tmp_path / "service", host, keys) as service:
        yield service


def _use_passkey(service: EnrolledService, host: EnrolledLogins, page: str, passkey: str) -> None:
    """Let Olga sign with a passkey only: in people.yaml, and in the files of root on the host."""
    people, key = service.policies.path / "people.yaml", service.keys["olga"].line
    assert key in people.read_text()
    people.write_text(people.read_text().replace(key, passkey))
    place = host.directory / "etc/keyturn"
    signers = [Signer("dora", service.keys["dora"].line), Signer("olga", passkey)]
    (place / "signers").write_text(format_signers(signers))
    (place / "floor").write_text(format_floor(HOST, {"owners": ["olga"]}, page))


class Taps:
    """Counts the taps of a person."""

    def __init__(self) -> None:
        self.count = 0

    def tap(self, place: Locator) -> None:
        self.count += 1
        place.tap()


def test_owner_changes_a_host_from_a_telephone_in_three_touches(
    browser: Browser,
    service: EnrolledService,
    host: EnrolledLogins,
    tmp_path: Path,
):
    server = Server(service.harness, "localhost")
    visit = open_window(browser, server, viewport=TELEPHONE, has_touch=True)
    devices = add_passkey_device(visit.page)
    try:
        passkey = make_passkey(visit, "olga", tmp_path)
        _use_passkey(service, host, server.address, passkey)
        run = service.request()
        service.sign_request(run)
        visit.sign_in("olga", f"/runs/{run.id}")
        expect(visit.page.get_by_text("Your approval is needed")).to_be_visible()
        taps, touched = Taps(), list[object]()

        def note_touch(event: object) -> None:
            touched.append(event)

        devices.on("WebAuthn.credentialAsserted", note_touch)
        taps.tap(visit.page.get_by_role("link", name="Sign…"))
        expect(visit.page.get_by_text("Evil Bot/2").first).to_be_visible()
        taps.tap(visit.page.get_by_role("button", name="Sign", exact=True))
        visit.page.wait_for_url(f"**/runs/{run.id}?done=signed")
        # The third touch is that of the device.
        assert taps.count + len(touched) == 3
        done = service.wait(run)
        assert (done.state, service.refused_agents) == (State.SUCCEEDED, ("Evil Bot/2",))
        assert "signed by dora olga" in (host.record / "log").read_text()
    finally:
        visit.page.context.close()
        server.stop()
