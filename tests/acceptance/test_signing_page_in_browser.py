"""The signing page in a browser: what it shows, what it refuses, and from request to approval."""

import base64
import json
import re
import subprocess
import zlib
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, CDPSession, Page, expect

from bot.audit import change_log, events
from bot.features.offline.plan_file import parse_plan_file
from bot.model.run import Run, State
from bot.signing.page import build_fragment
from bot.signing.sshsig import PLAN_NAMESPACE
from tests.acceptance.browsing import CONTRAST, Server, Visit, open_window
from tests.bot.features.offline.test_commands import Desk, make_plan
from tests.bot.harness import Harness, open_harness
from tests.policies import get_signed_rules, give_signing_key
from tests.toy import SetSwitch

pytestmark = pytest.mark.real

SIGNED = get_signed_rules("both")
_VERIFY = ("ssh-keygen", "-Y", "verify", "-n")
LAMP = SetSwitch(host="lb1", name="lamp", value="on")


@pytest.fixture
def server(tmp_path: Path) -> Generator[Server]:
    # Keys are bound to a name, and to no bare address.
    with open_harness(tmp_path, rules=SIGNED) as harness:
        server = Server(harness, "localhost")
        yield server
        server.stop()


def add_passkey_device(page: Page) -> CDPSession:
    """Give the browser a device that keeps passkeys, and is touched as soon as it asks."""
    devices = page.context.new_cdp_session(page)
    devices.send("WebAuthn.enable")
    devices.send(
        "WebAuthn.addVirtualAuthenticator",
        {
            "options": {
                "protocol": "ctap2",
                "transport": "internal",
                "hasResidentKey": True,
                "hasUserVerification": True,
                "isUserVerified": True,
                "automaticPresenceSimulation": True,
            }
        },
    )
    return devices


def make_passkey(visit: Visit, person: str, directory: Path) -> str:
    """Make a passkey on the page, and return its line for people.yaml."""
    visit.page.goto(f"{visit.server.address}/sign#new={person}")
    visit.page.get_by_role("button", name="Make a passkey").click()
    line = visit.page.locator("#key").inner_text()
    fingerprint = visit.page.locator("#fingerprint").inner_text()
    asked = visit.page.locator("#request").inner_text()
    assert line in asked
    assert fingerprint in asked
    mail = visit.page.get_by_role("link", name="Write a mail").get_attribute("href") or ""
    assert f"Signing%20key%20of%20{person}&body=Please%20add" in mail
    file = directory / f"{person}.pub"
    file.write_text(f"{line}\n")
    known = subprocess.run(["ssh-keygen", "-l", "-f", file], capture_output=True, check=True)
    assert known.stdout.decode() == f"256 {fingerprint} {person}@localhost (ECDSA-SK)\n"
    return line


def sign_run(visit: Visit, number: int) -> None:
    """Sign a plan: two clicks from the page of the run, and a touch."""
    visit.open(f"/runs/{number}")
    visit.page.get_by_role("link", name="Sign…").click()
    visit.page.get_by_role("button", name="Sign", exact=True).click()
    visit.page.wait_for_url(f"**/runs/{number}?done=signed")
    expect(visit.page.get_by_text("Your signature is recorded.")).to_be_visible()


def verify_with_ssh_keygen(harness: Harness, run: Run, person: str, directory: Path) -> None:
    """Have stock OpenSSH verify what a person signed, as anyone with the log can."""
    assert run.plan
    policy = harness.policies.get_policy()
    known = policy.find_person(person)
    assert known
    signers, signature = directory / "signers", directory / "signature"
    signers.write_text(f"{person} {known.signing_keys[0].line}\n")
    with harness.database.reading() as tx:
        signed = [
            entry.event.signature
            for entry in change_log.list_entries_of_run(tx, run.id)
            if isinstance(entry.event, events.Approved | events.RequestSigned)
            and entry.person == person
        ]
    signature.write_text(signed[0])
    subprocess.run(
        [*_VERIFY, PLAN_NAMESPACE, "-f", signers, "-I", person, "-s", signature],
        input=run.plan.document.encode(),
        check=True,
        capture_output=True,
    )


def test_requester_and_approver_sign_a_plan_with_passkeys(
    browser: Browser, server: Server, tmp_path: Path
) -> None:
    harness = server.harness
    # A telephone, with the passkeys of both.
    visit = open_window(browser, server, viewport={"width": 360, "height": 740})
    devices = add_passkey_device(visit.page)
    policy = harness.policies.path
    give_signing_key(policy, "dora", make_passkey(visit, "dora", tmp_path))
    run = harness.request(LAMP)
    visit.sign_in("dora")
    sign_run(visit, run.id)
    assert harness.get_run(run.id).state is State.PENDING
    devices.detach()
    devices = add_passkey_device(visit.page)
    give_signing_key(policy, "olga", make_passkey(visit, "olga", tmp_path))
    visit.sign_in("olga")
    sign_run(visit, run.id)
    harness.run_queued_work()
    assert harness.get_run(run.id).state is State.SUCCEEDED
    for person in ("dora", "olga"):
        verify_with_ssh_keygen(harness, run, person, tmp_path)
    # OpenSSH knows no passkeys with RSA, which Chromium would have a page offer as well.
    assert [one for one in visit.complaints if "pubKeyCredParams" not in one] == []
    visit.page.context.close()


def test_signing_page_fits_every_screen_with_enough_contrast(
    browser: Browser, server: Server
) -> None:
    run = server.harness.request(LAMP)
    assert run.plan
    visit = open_window(browser, server)
    visit.page.goto(f"{server.address}/sign#{build_fragment(run.plan, person='olga')}")
    for screen, width in visit.iterate_screens():
        expect(visit.page.get_by_role("button", name="Sign", exact=True)).to_be_visible()
        for words in ("toy set", "lamp", "dora", "Set lamp to on", "set lamp on"):
            expect(visit.page.get_by_text(words).first).to_be_visible()
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        assert visit.page.evaluate(CONTRAST) == []
        visit.keep(f"sign-{screen}")
    assert visit.complaints == []
    visit.page.context.close()


def _read_texts(fragment: str) -> dict[str, object]:
    packed = re.search(r"plan=([\w-]+)", fragment)
    assert packed
    blob = base64.urlsafe_b64decode(packed[1] + "==")
    return json.loads(zlib.decompress(blob, -zlib.MAX_WBITS))


def _pack_texts(texts: object) -> str:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    blob = packer.compress(json.dumps(texts).encode()) + packer.flush()
    return f"plan={base64.urlsafe_b64encode(blob).decode().rstrip('=')}&person=olga"


def test_signing_page_refuses_what_is_not_one_whole_plan(browser: Browser, server: Server) -> None:
    run = server.harness.request(LAMP)
    assert run.plan
    whole = _read_texts(build_fragment(run.plan, person="olga"))
    document, sections = str(whole["document"]), run.plan.sections
    expired = replace(run.plan, expires_at=run.plan.not_before).document
    section = sections[0].text
    cases: Mapping[str, tuple[object, str]] = {
        "other steps": (
            {"document": document, "sections": [section.replace("do on", "do off")]},
            "are not those of the plan",
        ),
        "no steps": ({"document": document, "sections": []}, "the steps of each of its hosts"),
        "more steps": (
            {"document": document, "sections": [section, section]},
            "the steps of each of its hosts",
        ),
        "an unknown line": (
            {"document": document.replace("nonce", "hidden x\nnonce"), "sections": [section]},
            "does not know in this place",
        ),
        "a line twice": (
            {"document": document.replace("run ", "run 9\nrun "), "sections": [section]},
            "does not know in this place",
        ),
        "letters that turn the text": (
            {
                "document": document.replace("installation ", "installation \u202e"),
                "sections": [section],
            },
            "cannot be shown",
        ),
        "a plan that has expired": (
            {"document": expired, "sections": [section]},
            "The plan has expired",
        ),
        "another version": (
            {"document": document.replace("plan 1", "plan 2", 1), "sections": [section]},
            "another version",
        ),
        "no plan": ([], "is not complete"),
    }
    visit = open_window(browser, server)
    for name, (texts, words) in cases.items():
        visit.page.goto("about:blank")
        visit.page.goto(f"{server.address}/sign#{_pack_texts(texts)}")
        expect(visit.page.get_by_role("alert"), name).to_contain_text(words)
        expect(visit.page.get_by_role("button", name="Sign", exact=True), name).to_have_count(0)
        expect(visit.page.locator("#plan"), name).to_be_hidden()
    visit.page.goto("about:blank")
    visit.page.goto(f"{server.address}/sign#plan=abcd")
    expect(visit.page.get_by_role("alert")).to_contain_text("is not complete")
    visit.page.goto("about:blank")
    visit.page.goto(f"{server.address}/sign")
    expect(visit.page.get_by_label("choose the file of an offline plan")).to_be_visible()
    expect(visit.page.get_by_role("button", name="Sign", exact=True)).to_have_count(0)
    visit.page.context.close()


def test_passkey_signs_the_file_of_an_offline_plan(
    server: Server, browser: Browser, tmp_path: Path
):
    desk = Desk(tmp_path / "desk")
    desk.write(plan := make_plan())
    visit = open_window(browser, server)
    add_passkey_device(visit.page)
    give_signing_key(desk.policy.path, "stan", make_passkey(visit, "stan", tmp_path))
    visit.page.goto(f"{server.address}/sign")
    visit.page.get_by_label("choose the file of an offline plan").set_input_files(desk.file)
    expect(visit.page.get_by_role("heading", name="abusers clear")).to_be_visible()
    expect(visit.page.get_by_role("heading", name="Unblock 203.0.113.9")).to_be_visible()
    visit.page.get_by_role("button", name="Sign", exact=True).click()
    signed = visit.page.locator("#signature").inner_text()
    altered = tmp_path / "altered"
    for old, new, words in (
        ("s do true", "s do false", "are not those of the plan"),
        ("d run 0", "d run 7", "the plan of a run, and no offline plan"),
        ("keyturn-offline 1", "keyturn-offline 2", "This is no offline plan"),
    ):
        altered.write_text(desk.file.read_text().replace(old, new))
        visit.page.goto(f"{server.address}/sign")
        visit.page.get_by_label("choose the file").set_input_files(altered)
        expect(visit.page.get_by_role("alert")).to_contain_text(words)
        expect(visit.page.get_by_role("button", name="Sign", exact=True)).to_be_hidden()
    visit.page.context.close()
    cut = desk.type("sign", "--as", "stan", "--passkey", signed[:-40])
    assert (cut.returncode, "the browser returned no signature" in cut.stderr) == (2, True), cut
    other = desk.type("sign", "--as", "olga", "--passkey", signed)
    assert other.returncode == 2, other
    done = desk.type("sign", "--as", "stan", "--passkey", signed)
    assert (done.returncode, "Signed by stan" in done.stdout) == (0, True), done
    (signature,) = parse_plan_file(desk.file.read_text()).texts.signatures
    known = desk.read_policy().find_person("stan")
    assert known
    (tmp_path / "signers").write_text(f"stan {known.signing_keys[0].line}\n")
    (tmp_path / "signature").write_text(signature)
    subprocess.run(
        [
            *(*_VERIFY, PLAN_NAMESPACE, "-f", tmp_path / "signers"),
            *("-I", "stan", "-s", tmp_path / "signature"),
        ],
        input=plan.document.encode(),
        check=True,
        capture_output=True,
    )
