"""The sessions page, and ending sessions everywhere."""

import pytest

from bot.audit import change_log
from bot.auth import sessions
from bot.web.sessions import describe_user_agent
from tests.bot.web.conftest import Site

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Firefox/140.0"


def _named(site: Site, person: str) -> list[str]:
    with site.database.reading() as tx:
        return [one.name for one in sessions.list_sessions(tx, person)]


def test_sessions_page_lists_each_session_with_its_browser(site: Site) -> None:
    other = site.browser()
    other.post(site.link("dora"), headers={"User-Agent": FIREFOX})
    page = site.browser("dora").get("/sessions")
    assert page.status_code == 200
    assert f'title="{FIREFOX}">Firefox on Linux<' in page.text
    assert "Unknown browser" in page.text
    assert page.text.count("this session") == 1
    assert "Olga" not in page.text


@pytest.mark.parametrize(
    ("agent", "text"),
    [
        (FIREFOX, "Firefox on Linux"),
        (
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
            "Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0",
            "Edge on Windows",
        ),
        (
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like "
            "Gecko) Version/26.0 Safari/605.1.15",
            "Safari on macOS",
        ),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_7 like Mac OS X) AppleWebKit/605.1.15 (KHTML, "
            "like Gecko) CriOS/142.0 Mobile/15E148 Safari/604.1",
            "Chrome on iPhone",
        ),
        (
            "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) "
            "Chrome/142.0.0.0 Mobile Safari/537.36",
            "Chrome on Android",
        ),
        ("curl/8.14.1", "curl/8.14.1"),
        ("Firefox/1.0", "Firefox"),
        ("", "Unknown browser"),
    ],
)
def test_user_agent_is_described_as_browser_and_system(agent: str, text: str) -> None:
    assert describe_user_agent(agent) == text


def test_session_ended_from_another_browser_is_signed_out(site: Site) -> None:
    lost, here = site.browser("dora"), site.browser("dora")
    offered = here.get("/sessions").text
    (name,) = [one for one in _named(site, "dora") if f"/sessions/{one}/end" in offered]
    assert lost.get("/").status_code == 200
    answer = here.post(f"/sessions/{name}/end")
    assert (answer.status_code, answer.headers["location"]) == (303, "/sessions?done=ended")
    assert lost.get("/").status_code == 401
    assert here.get("/").status_code == 200
    assert site.harness.list_entry_kinds()[-1] == "session ended"


def test_sign_out_everywhere_ends_all_sessions_and_sign_in_links(site: Site) -> None:
    lost, here, link = site.browser("dora"), site.browser("dora"), site.link("dora")
    olgas = site.browser("olga")
    answer = here.post("/sessions/end-all")
    assert "You are signed out everywhere" in answer.text
    assert "Dora" not in answer.text
    assert [one.get("/").status_code for one in (lost, here, olgas)] == [401, 401, 200]
    assert site.browser().post(link).status_code == 410
    assert site.harness.list_entry_kinds().count("sessions ended") == 1


def test_session_of_another_person_cannot_be_ended(site: Site) -> None:
    olgas = site.browser("olga")
    (name,) = _named(site, "olga")
    assert site.browser("dora").post(f"/sessions/{name}/end").status_code == 303
    assert olgas.get("/").status_code == 200
    assert "session ended" not in site.harness.list_entry_kinds()


def test_invalid_session_name_ends_nothing(site: Site) -> None:
    browser = site.browser("dora")
    for name in ("%", "_" * 16, "0" * 15, "A" * 16, "%25" * 4):
        assert browser.post(f"/sessions/{name}/end").status_code in {404, 422}
    assert browser.get("/").status_code == 200


def test_hostile_user_agent_stays_text_on_the_sessions_page(site: Site) -> None:
    hostile = "<script>alert(1)</script>\x1b[2J\u202e" + "x" * 1000
    other = site.browser()
    other.post(site.link("dora"), headers={b"User-Agent": hostile.encode()})
    page = site.browser("dora").get("/sessions")
    assert "<script>alert" not in page.text
    assert "\x1b" not in page.text
    assert "x" * (sessions.MAX_AGENT_LENGTH + 1) not in page.text


def test_session_name_is_not_a_session_token(site: Site) -> None:
    site.browser("dora")
    (name,) = _named(site, "dora")
    thief = site.browser()
    site.carry(thief, name)
    assert thief.get("/").status_code == 401


def test_sign_out_everywhere_is_logged_with_its_person(site: Site) -> None:
    site.browser("dora").post("/sessions/end-all")
    with site.database.reading() as tx:
        last = change_log.list_newest_entries(tx, limit=1)[0]
    assert (last.kind, last.person) == ("sessions ended", "dora")
