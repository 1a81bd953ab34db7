"""Second factors, step-up and break-glass on the pages."""

import re

import pytest
from fastapi.testclient import TestClient
from pyotp.totp import TOTP

from bot.model.run import RequestTerms, State
from tests.bot.authenticator_app import enrol_app
from tests.bot.harness import WEB
from tests.bot.signing.soft_passkey import SoftPasskey
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.policies import get_signed_rules, get_starter_rules, give_signing_key
from tests.ticket_system import require_unreachable_tickets
from tests.toy import MeltSwitch, SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
WHY = "all customers see an error page"


def code(site: Site, secret: str, *, later: int = 0) -> str:
    with site.database.reading() as tx:
        return TOTP(secret).at(tx.now // 1_000_000 + 30 * later)


def enrol(site: Site, browser: TestClient) -> str:
    """Enrol an app, and return its secret."""
    address = browser.post("/second-factor/app").headers["location"]
    shown = browser.get(address).text
    match = re.search(r'id="secret">([A-Z2-7 ]+)<', shown)
    assert match
    assert "data:image/svg+xml" in shown
    secret = match[1].replace(" ", "")
    wrong = browser.post(address, data={"code": "000000"})
    assert (wrong.status_code, "The code is not correct" in wrong.text) == (422, True)
    answer = browser.post(address, data={"code": code(site, secret)})
    assert answer.headers["location"] == "/second-factor?done=enrolled"
    assert browser.get(address).status_code == 404
    return secret


def test_page_shows_the_command_that_signs_where_a_rule_requires_signatures(site: Site) -> None:
    rules = site.policy / "policy.cedar"
    signed = '@approvals("1")\n@signed("both")'
    rules.write_text(get_starter_rules().replace('@approvals("1")', signed, 1))
    run = site.harness.request(LAMP_ON)
    page = site.browser("dora").get(f"/runs/{run.id}").text
    assert "Your signature is needed" in page
    assert f"<code>keyturn sign {run.id}</code>" in page
    page = site.browser("adam").get(f"/runs/{run.id}").text
    assert 'id="approve"' not in page
    rules.write_text(rules.read_text().replace('@signed("both")', '@signed("approver")', 1))
    run = site.harness.request(LAMP_ON)
    page = site.browser("adam").get(f"/runs/{run.id}").text
    assert "Your approval is a signature over the plan" in page
    assert 'id="approve"' not in page
    answer = site.browser("adam").post(f"/runs/{run.id}/approve", data={"digest": run.digest})
    assert "takes your signature over its plan: type <code>keyturn sign" in answer.text
    assert site.harness.get_run(run.id).state is State.PENDING


def test_signing_keys_are_listed_with_what_they_are_needed_for(site: Site) -> None:
    (site.policy / "policy.cedar").write_text(get_signed_rules("approver"))
    olga = site.browser("olga")
    none = Page(olga.get("/second-factor").text)
    assert "You sign approvals of every reversible change" in none.text
    assert "None yet" in none.text
    assert "/sign#new=olga" in none.links
    key = SoftPasskey().public
    give_signing_key(site.policy, "olga", f"{key.line} phone")
    people = site.policy / "people.yaml"
    people.write_text(f"verify_user: true\n{people.read_text()}")
    page = Page(olga.get("/second-factor").text)
    assert f"Passkey or security key phone {key.fingerprint}" in page.text
    assert "/sign#new=olga&verify=yes" in page.links
    assert "-O verify-required" in page.text
    policy = Page(olga.get("/policy").text)
    assert f"Olga Owner Passkey or security key {key.fingerprint} phone Needed for" in policy.text
    assert "Adam Admin None yet Needed for approvals" in policy.text
    assert "/sign#new=adam" not in " ".join(policy.links)


def test_authenticator_app_is_enrolled_confirmed_and_used_for_an_approval(site: Site) -> None:
    rules = site.policy / "policy.cedar"
    rules.write_text(get_starter_rules().replace('@approvals("1")', '@approvals("1")\n@stepup', 1))
    run = site.harness.request(LAMP_ON)
    adam = site.browser("adam")
    secret = enrol(site, adam)
    page = adam.get("/second-factor").text
    assert "Not confirmed" in page
    assert "Olga Owner" in page

    # It takes an owner with a second factor, and the digits that Adam reads to her.
    olga = site.browser("olga")
    olgas = enrol_app(site.harness, "olga")
    digest = re.findall(r"factors: \[([0-9a-f]{32})\]", page)[0]
    number = re.findall(r'action="/second-factor/(\d+)/remove"', page)[0]
    confirm = f"/second-factor/{number}/confirm"
    answer = olga.post(confirm, data={"digest": digest[:10]})
    assert answer.headers["location"] == "/step-up?next=/second-factor"
    stepped = olga.post("/step-up/code", data={"code": olgas.code(), "next": "/second-factor"})
    assert stepped.headers["location"] == "/second-factor"
    assert olga.post(confirm, data={"digest": "0123456789"}).status_code == 422
    assert digest not in olga.get("/second-factor").text
    assert olga.post(confirm, data={"digest": digest[:10]}).status_code == 303
    assert "confirmed by Olga Owner" in adam.get("/second-factor").text

    # Approving wants it now.
    shown = adam.get(f"/runs/{run.id}").text
    assert f'href="/step-up?next=/runs/{run.id}"' in shown
    refused = adam.post(f"/runs/{run.id}/approve", data={"digest": run.digest})
    assert refused.headers["location"] == f"/step-up?next=/runs/{run.id}"
    assert site.harness.get_run(run.id).state is State.PENDING
    to = {"next": f"/runs/{run.id}"}
    assert adam.post("/step-up/code", data=to | {"code": "123"}).status_code == 422
    stepped = adam.post("/step-up/code", data=to | {"code": code(site, secret, later=1)})
    assert stepped.headers["location"] == f"/runs/{run.id}"
    assert "which you have just confirmed" in adam.get(f"/runs/{run.id}").text
    assert adam.post(f"/runs/{run.id}/approve", data={"digest": run.digest}).status_code == 303
    site.harness.run_queued_work()
    assert site.harness.get_run(run.id).state is State.SUCCEEDED
    assert "Adam Admin with a second factor" in re.sub(
        r"<[^>]+>", "", adam.get(f"/runs/{run.id}").text
    )


def test_break_glass_is_activated_with_a_second_factor_and_reviewed(site: Site) -> None:
    site.harness.fleet.hosts["web1"] = {"lamp": "off"}
    run = site.harness.request(SetSwitch(host="web1", name="lamp", value="on"), person="adam")
    app, adam = enrol_app(site.harness, "adam"), site.browser("adam")
    page = f"/runs/{run.id}"
    form = {"digest": run.digest, "reason": WHY}
    assert "Break-glass: emergency access" in adam.get(page).text
    assert "Break-glass: emergency access" not in site.browser("olga").get(page).text
    answer = adam.post(f"{page}/break-glass", data=form)
    assert answer.headers["location"] == f"/step-up?next={page}"
    assert site.harness.get_run(run.id).state is State.PENDING
    # What was typed is there again.
    assert WHY in adam.get(page).text
    adam.post("/step-up/code", data={"code": app.code(), "next": page})
    assert adam.post(f"{page}/break-glass", data=form | {"reason": "x"}).status_code == 422
    answer = adam.post(f"{page}/break-glass", data=form | {"reason": f"{WHY}\r\nof ours"})
    assert answer.headers["location"] == f"{page}?done=break-glass"
    site.harness.run_queued_work()
    assert site.harness.get_run(run.id).state is State.SUCCEEDED
    assert "Break-glass activated by Adam Admin" in adam.get(page).text

    # Everybody reads it, until somebody else has reviewed it.
    text = Page(site.browser("dora").get("/").text).text
    assert "Adam Admin used break-glass" in text
    assert WHY in text
    assert "Your findings after reviewing this run" not in adam.get(page).text
    assert adam.post(f"{page}/review", data={"findings": "it was right"}).status_code == 403
    olga = site.browser("olga")
    assert "Your findings after reviewing this run" in olga.get(page).text
    assert olga.post(f"{page}/review", data={"findings": "it was right"}).status_code == 303
    assert "“it was right”" in adam.get(page).text
    assert "used break-glass" not in site.browser("dora").get("/").text

    # A plan that cannot be requested, because the rule asks for a change ticket.
    require_unreachable_tickets(site.policy, "administrators request other changes")
    lamp_off = SetSwitch(host="web1", name="lamp", value="off")
    plan = site.harness.request(lamp_off, "adam", plan_only=True)
    page = f"/runs/{plan.id}"
    text = Page(adam.get(page).text).text
    assert "It cannot be requested: the policy requires an approved change ticket." in text
    assert "without the missing approvals and change ticket and despite any freeze" in text
    assert "Request approval" not in text
    adam.post(f"{page}/break-glass", data={"digest": plan.digest, "reason": WHY})
    site.harness.run_queued_work()
    assert site.harness.get_run(plan.id).state is State.SUCCEEDED


def test_page_of_a_plan_offers_break_glass_where_it_would_need_approvals(site: Site) -> None:
    site.harness.fleet.hosts["web1"] = {"lamp": "off"}
    plan = site.harness.request(
        SetSwitch(host="web1", name="lamp", value="on"), "adam", plan_only=True
    )
    adam = site.browser("adam")
    assert "Break-glass: emergency access" in adam.get(f"/runs/{plan.id}").text
    own = site.harness.request(
        SetSwitch(host="lb1", name="lamp", value="on"), "adam", plan_only=True
    )
    assert "Break-glass: emergency access" not in adam.get(f"/runs/{own.id}").text


def test_page_says_why_a_requested_break_glass_cannot_be_used(site: Site) -> None:
    """The rules allow it for reversible changes; only the plan shows that this one is not."""
    run = site.harness.service.request_run(
        MeltSwitch(host="lb1", name="lamp"), RequestTerms("adam", WEB)
    )
    site.harness.service.break_glass.request_break_glass(run.id, person="adam", reason=WHY)
    site.harness.run_queued_work()
    assert site.harness.get_run(run.id).state is State.PENDING
    text = Page(site.browser("adam").get(f"/runs/{run.id}").text).text
    assert "Break-glass cannot start this run: the policy does not allow you break-glass" in text
    assert "cannot start this run" not in site.browser("olga").get(f"/runs/{run.id}").text


def test_second_factor_secret_is_hidden_from_other_people(site: Site) -> None:
    address = site.browser("adam").post("/second-factor/app").headers["location"]
    answer = site.browser("olga").get(address)
    assert answer.status_code == 404
    assert "secret" not in answer.text


def test_step_up_page_without_a_confirmed_factor_links_to_enrolment(site: Site) -> None:
    page = site.browser("dora").get("/step-up?next=/runs/1")
    assert 'href="/second-factor"' in page.text
    assert 'name="code"' not in page.text


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/sign-out"])
def test_step_up_redirects_only_to_own_pages(site: Site, to: str) -> None:
    app, browser = enrol_app(site.harness, "olga"), site.browser("olga")
    assert "evil" not in browser.get("/step-up", params={"next": to}).text
    answer = browser.post("/step-up/code", data={"code": app.code(), "next": to})
    assert answer.headers["location"] == "/"


def test_security_keys_are_not_offered_without_https_and_a_host_name(site: Site) -> None:
    page = site.browser("olga").get("/second-factor").text
    assert "only on pages reached by host name over HTTPS" in page
    assert "data-key" not in page
    assert "Add a key" not in page
