"""The page of API tokens."""

import re

import pytest

from bot.api.schemas import RunOut
from bot.auth import tokens as auth_tokens
from bot.db import runs
from bot.web import tokens
from tests.agents import add_agent, get_rules_for_agents, request_as_agent
from tests.bot.authenticator_app import enrol_app
from tests.bot.web.conftest import Site
from tests.toy import SetSwitch

WANTED = {"name": "<b>weekly", "days": "30", "scope-request": "on", "scope-read": "on"}


def test_api_token_is_shown_once_and_listed_by_its_prefix(site: Site):
    browser = site.browser("dora")
    made = browser.post("/tokens", data=WANTED).text
    tokens_shown = re.findall(r"kt_[0-9a-f]{8}_[A-Za-z0-9_-]{43}", made)
    assert len(set(tokens_shown)) == 1
    with site.database.reading() as tx:
        token = auth_tokens.find_token(tx, tokens_shown[0])
    assert token is not None
    assert (token.person, token.scopes) == ("dora", ("read", "request"))
    again = browser.get("/tokens").text
    assert tokens_shown[0] not in again
    assert token.prefix in again
    assert "&lt;b&gt;weekly" in again
    assert tokens_shown[0] not in str(site.harness.list_entry_kinds())


def read_words(page: str) -> str:
    """Return the text of a page on one line."""
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_agent_token_is_listed_and_revoked_by_the_person_it_acts_for(site: Site):
    add_agent(site.harness)
    _, secret = site.harness.service.agents.create_token("triage-bot", behalf="dora", days=1)
    assert "an agent asks to act for you with it" in site.browser("dora").get("/tokens").text
    # Another person cannot agree, and the person agrees once.
    assert site.browser("olga").post("/tokens/1/confirm").status_code == 422
    assert _is_confirmed(site, secret) is False
    assert site.browser("dora").post("/tokens/1/confirm").status_code == 303
    assert _is_confirmed(site, secret) is True
    assert site.browser("dora").post("/tokens/1/confirm").status_code == 409
    assert "an agent acts for you with it" in site.browser("dora").get("/tokens").text
    assert site.browser("dora").post("/tokens/1/revoke").status_code == 303
    with site.database.reading() as tx:
        token = auth_tokens.find_token(tx, secret)
        assert token is not None
        assert not token.is_active(tx.now)


def _is_confirmed(site: Site, secret: str) -> bool:
    with site.database.reading() as tx:
        token = auth_tokens.find_token(tx, secret)
        return token is not None and token.is_confirmed


def test_run_page_shows_the_person_an_agent_requests_for(site: Site):
    rules = site.policy / "policy.cedar"
    rules.write_text(get_rules_for_agents())
    add_agent(site.harness)
    run = request_as_agent(site.harness, SetSwitch(host="lb1", name="lamp", value="on"))
    page = read_words(site.browser("olga").get(f"/runs/{run.id}").text)
    assert "Requested by triage-bot for Dora Developer" in page
    assert "Reason written by an agent" in page
    home = read_words(site.browser("olga").get("/").text)
    assert "Requested by triage-bot for Dora Developer" in home
    listed = read_words(site.browser("olga").get("/runs").text)
    assert "triage-bot for Dora Developer" in listed
    with site.database.reading() as tx:
        assert RunOut.from_run(runs.get_run(tx, run.id), (), "").requested_for == "dora"


def test_api_tokens_of_other_people_are_hidden_and_cannot_be_revoked(site: Site):
    site.browser("dora").post("/tokens", data=WANTED)
    olga = site.browser("olga")
    assert "weekly" not in olga.get("/tokens").text
    refused = olga.post("/tokens/1/revoke")
    assert (refused.status_code, "You have no such token." in refused.text) == (422, True)
    dora = site.browser("dora")
    done = dora.post("/tokens/1/revoke")
    assert (done.status_code, done.headers["location"]) == (303, "/tokens?done=revoked")
    assert "The token is revoked" in dora.get("/tokens?done=revoked").text
    assert "weekly" not in dora.get("/tokens").text


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"days": "x"}, "The expiry must be"),
        ({"days": "999"}, "1 to 366"),
        ({"name": "x" * 61}, "60"),
    ],
)
def test_invalid_api_token_form_is_refused_and_keeps_its_values(
    site: Site, wrong: dict[str, str], says: str
):
    answer = site.browser("dora").post("/tokens", data=WANTED | wrong)
    assert answer.status_code == 422
    assert says in answer.text
    assert 'name="scope-request" checked' in answer.text
    assert site.harness.list_entry_kinds() == []


def test_api_token_needs_a_step_up_for_people_with_a_second_factor(site: Site):
    app = enrol_app(site.harness, "olga")
    browser = site.browser()
    site.carry(browser, app.session)
    answer = browser.post("/tokens", data=WANTED)
    assert (answer.status_code, answer.headers["location"]) == (303, "/step-up?next=/tokens")
    stepped = browser.post("/step-up/code", data={"code": app.code(), "next": "/tokens"})
    assert stepped.headers["location"] == "/tokens"
    assert "Your new token" in browser.post("/tokens", data=WANTED).text


def test_without_the_step_up_check_a_stolen_session_creates_an_api_token(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    def never(_visit: object) -> bool:
        return False

    monkeypatch.setattr(tokens, "_needs_step_up", never)
    browser = site.browser()
    site.carry(browser, enrol_app(site.harness, "olga").session)
    assert "Your new token" in browser.post("/tokens", data=WANTED).text
