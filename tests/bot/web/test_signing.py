"""What the signing page sends back, and the way to it."""

import base64
from collections.abc import Mapping

import pytest

from bot.health import check_signing_page
from bot.model.run import State
from bot.signing.page import hash_signing_page
from tests.bot.signing.soft_passkey import SoftPasskey
from tests.bot.web.conftest import Site
from tests.policies import get_signed_rules, give_signing_key
from tests.toy import SetSwitch

HERE = "https://keyturn.example.com"
LAMP = SetSwitch(host="lb1", name="lamp", value="on")


@pytest.fixture
def signing_site(site: Site) -> Site:
    """A site whose owners sign what developers request. Olga has a passkey."""
    policy = site.harness.policies.path
    (policy / "policy.cedar").write_text(get_signed_rules("approver"))
    return site


PASSKEY = SoftPasskey()


def _sign(document: str) -> Mapping[str, str]:
    """Return what the page sends."""
    return {
        name: base64.urlsafe_b64encode(blob).decode().rstrip("=")
        for name, blob in PASSKEY.answer_browser(document.encode()).items()
    }


def _give_key(site: Site, person: str) -> None:
    give_signing_key(site.harness.policies.path, person, PASSKEY.public.line)


def test_signature_alone_approves_as_the_person_whose_key_made_it(signing_site: Site):
    _give_key(signing_site, "olga")
    harness = signing_site.harness
    run = harness.request(LAMP)
    assert run.plan
    sent = {**_sign(run.plan.document), "run": str(run.id), "person": "olga"}
    stranger = signing_site.browser()
    # The page may be on any site: what it sends needs neither a session nor an origin.
    away = {"origin": "https://sign.example.com", "sec-fetch-site": "cross-site"}
    for changed in ({"person": "adam"}, {"person": "dora"}, {"person": ""}, {"run": "999"}):
        assert (
            stranger.post(
                "/signatures", data=sent | changed, headers=away, follow_redirects=False
            ).status_code
            >= 400
        )
    assert harness.get_run(run.id).state is State.PENDING
    answer = stranger.post("/signatures", data=sent, headers=away, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{run.id}?done=signed")
    harness.run_queued_work()
    assert harness.get_run(run.id).state is State.SUCCEEDED
    again = stranger.post("/signatures", data=sent, headers=away)
    assert again.status_code == 409


def test_plans_that_wait_for_a_signature_follow_one_another(signing_site: Site):
    _give_key(signing_site, "olga")
    harness = signing_site.harness
    numbers = [harness.request(LAMP).id for _ in range(2)]
    olga = signing_site.browser("olga")
    opened = olga.get("/signatures/next", follow_redirects=False)
    assert opened.headers["location"] == f"/runs/{numbers[0]}/sign?then=all"
    page = olga.get(opened.headers["location"], follow_redirects=False)
    assert page.headers["location"].startswith("/sign#plan=")
    assert page.headers["location"].endswith("&person=olga&then=all")
    harness.service.deny_run(numbers[0], person="olga", reason="no")
    opened = olga.get("/signatures/next", follow_redirects=False)
    assert opened.headers["location"] == f"/runs/{numbers[1]}/sign?then=all"
    harness.service.deny_run(numbers[1], person="olga", reason="no")
    assert olga.get("/signatures/next", follow_redirects=False).headers["location"] == "/"
    assert olga.get(f"/runs/{numbers[0]}/sign", follow_redirects=False).status_code == 403


def test_doctor_says_who_serves_the_signing_page(signing_site: Site):
    def check(elsewhere: str) -> str:
        policy = signing_site.harness.policies.get_policy()
        with signing_site.harness.database.reading() as tx:
            found = [*check_signing_page(HERE, elsewhere, tx, policy)]
        return found[0].message if found else ""

    assert check("") == ""
    _give_key(signing_site, "olga")
    assert f"is at {HERE}/sign: anyone who can alter it" in check("")
    assert "is at https://sign.example.com/, on another server" in check(
        "https://sign.example.com/"
    )
    assert check("").endswith(hash_signing_page(HERE))
