"""What the signing page sends back, and the way to it."""

import base64
from collections.abc import Mapping
from urllib.parse import parse_qs

import pytest

from bot.health import check_signing_page
from bot.model.run import State
from bot.signing.page import hash_signing_page
from tests.bot.signing.soft_passkey import SoftPasskey
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.bot.web.sample_runs import add_pending_run, add_requested_run
from tests.policies import get_signed_rules, get_starter_rules, give_signing_key
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
    answers = {
        (answer.status_code, Page(answer.text).text)
        for changed in (
            *({"person": one} for one in ("adam", "dora", "eve", "")),
            *({"run": one} for one in ("999", "0", "", "-1", "x", "9" * 30)),
        )
        for answer in [stranger.post("/signatures", data=sent | changed, headers=away)]
    }
    # A stranger does not learn which runs and people there are.
    assert [status for status, _ in answers] == [422]
    assert harness.get_run(run.id).state is State.PENDING
    answer = stranger.post("/signatures", data=sent, headers=away, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{run.id}?done=signed")
    harness.run_queued_work()
    assert harness.get_run(run.id).state is State.SUCCEEDED
    again = stranger.post("/signatures", data=sent, headers=away)
    assert again.status_code == 409


_LONG = base64.urlsafe_b64encode(b"x" * 40_000).decode()


@pytest.mark.parametrize(
    ("changed", "advice"),
    [
        ({"signature": ""}, "try again"),
        ({"signature": "AAAA"}, "try again"),
        ({"signature": _LONG}, "try again"),
        ({"signature": "%%%"}, "try again"),
        ({"signature": "\N{SNOWMAN}"}, "try again"),
        ({"client_data": ""}, "try again"),
        ({"client_data": "eyJ0eXBlIjoi"}, "try again"),
        ({"client_data": base64.urlsafe_b64encode(b"\xff\xfe{}").decode()}, "try again"),
        ({"client_data": base64.urlsafe_b64encode(b'{"origin": "x"}').decode()}, "open the page"),
        ({"client_data": _LONG}, "try again"),
        ({"client_data": base64.urlsafe_b64encode(b"[" * 30_000).decode()}, "try again"),
        ({"authenticator_data": ""}, "try again"),
        ({"authenticator_data": "AAAA"}, "try again"),
        ({"authenticator_data": _LONG}, "use another"),
        ({"authenticator_data": "A" * 48 + "="}, "try again"),
        ({"run": "١"}, "open the page"),
        ({"person": "olga\r\n"}, "open the page"),
        ({"person": "x" * 5000}, "open the page"),
    ],
)
def test_bad_input_of_the_form_says_what_to_do_and_nothing_runs(
    signing_site: Site, changed: dict[str, str], advice: str
):
    _give_key(signing_site, "olga")
    harness = signing_site.harness
    run = harness.request(LAMP)
    assert run.plan
    sent = {**_sign(run.plan.document), "run": str(run.id), "person": "olga"} | changed
    answer = signing_site.browser().post("/signatures", data=sent)
    assert (answer.status_code, advice in Page(answer.text).text) == (422, True)
    harness.run_queued_work()
    assert (harness.get_run(run.id).state, harness.fleet.sent) == (State.PENDING, [])


def test_plans_that_wait_for_a_signature_follow_one_another(signing_site: Site):
    _give_key(signing_site, "olga")
    harness = signing_site.harness
    numbers = [harness.request(LAMP).id for _ in range(2)]
    olga = signing_site.browser("olga")
    opened = olga.get("/signatures/next", follow_redirects=False)
    assert opened.headers["location"] == f"/runs/{numbers[0]}/sign?then=all"
    page = olga.get(opened.headers["location"], follow_redirects=False)
    assert page.headers["location"].startswith("/sign#plan=")
    assert page.headers["location"].endswith("&person=olga&then=all&reason=optional")
    harness.service.deny_run(numbers[0], person="olga", reason="no")
    opened = olga.get("/signatures/next", follow_redirects=False)
    assert opened.headers["location"] == f"/runs/{numbers[1]}/sign?then=all"
    harness.service.deny_run(numbers[1], person="olga", reason="no")
    assert olga.get("/signatures/next", follow_redirects=False).headers["location"] == "/"
    assert olga.get(f"/runs/{numbers[0]}/sign", follow_redirects=False).status_code == 403


def test_page_asks_for_the_reason_that_a_rule_requires_before_the_touch(signing_site: Site):
    def read_fragment(person: str) -> Mapping[str, list[str]]:
        to = signing_site.browser(person).get(f"/runs/{run.id}/sign", follow_redirects=False)
        return parse_qs(to.headers["location"].partition("#")[2])

    _give_key(signing_site, "olga")
    harness = signing_site.harness
    run = harness.request(LAMP)
    assert (found := read_fragment("olga"))["reason"] == ["optional"]
    assert "verify" not in found
    signed = '@signed("both")\n'
    rules = get_signed_rules("both").replace(signed, f'@reason("required")\n{signed}')
    (harness.policies.path / "policy.cedar").write_text(rules)
    people = harness.policies.path / "people.yaml"
    people.write_text(f"verify_user: true\n{people.read_text()}")
    run = harness.request(LAMP, reason="a customer is locked out")
    assert "reason" not in read_fragment("dora")
    assert read_fragment("dora")["verify"] == ["yes"]


def test_oldest_of_very_many_plans_is_signed_first(signing_site: Site):
    harness = signing_site.harness
    with harness.database.transaction() as tx:
        numbers = [add_pending_run(tx, add_requested_run(tx)).id for _ in range(101)]
    opened = signing_site.browser("olga").get("/signatures/next", follow_redirects=False)
    assert opened.headers["location"] == f"/runs/{numbers[0]}/sign?then=all"


def test_plan_whose_rules_require_no_signature_is_not_signed_next(signing_site: Site):
    harness = signing_site.harness
    (harness.policies.path / "policy.cedar").write_text(get_starter_rules())
    harness.request(LAMP)
    opened = signing_site.browser("olga").get("/signatures/next", follow_redirects=False)
    assert opened.headers["location"] == "/"


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


def test_home_names_a_plan_that_waits_for_a_signature_only_to_who_signs_it(site: Site):
    (site.harness.policies.path / "policy.cedar").write_text(get_signed_rules("both"))
    run = site.harness.request(LAMP)
    assert f"Sign run {run.id}" in Page(site.browser("dora").get("/").text).text
    olga = site.browser("olga")
    assert "Nothing needs your action." in Page(olga.get("/").text).text
    page = Page(olga.get(f"/runs/{run.id}").text).text
    assert "The requester has to sign first" in page
    assert "Dora Developer has to sign the plan first. You can still deny it" in page
