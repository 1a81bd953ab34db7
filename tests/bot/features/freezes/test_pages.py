"""The page of freezes: who sees what, orders one, and ends it."""

from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page


def test_owner_freezes_hosts_and_ends_it_on_the_page(site: Site):
    browser = site.browser("olga")
    assert "No freeze is active or planned." in Page(browser.get("/freezes").text).text
    reason = "<b>the fair</b>"
    page = site.send(browser, "/freezes", hosts="lb1, web*", until="2 hours", reason=reason)
    assert page.strange == []
    assert "Changes of the edge and the web servers, on lb1 and web*" in page.text
    assert reason in page.text
    assert "End now : freeze 1" in page.text
    assert reason in Page(site.browser("dora").get("/").text).text
    ended = site.send(browser, "/freezes/1/end", reason="")
    assert "What it held starts within seconds." in ended.text
    assert "No freeze is active or planned." in ended.text


def test_developer_sees_freezes_and_no_form(site: Site):
    site.send(site.browser("olga"), "/freezes", hosts="lb1", until="2 hours", reason="the fair")
    page = Page(site.browser("dora").get("/freezes").text)
    assert "the fair" in page.text
    assert "End now" not in page.text
    assert "Freeze changes now" not in page.text


def test_wrong_order_keeps_what_was_typed(site: Site):
    answer = site.browser("olga").post(
        "/freezes", data={"hosts": "db*", "until": "2 hours", "reason": "the fair"}
    )
    assert answer.status_code == 422
    assert "o host matches 'db*'" in Page(answer.text).text
    assert 'value="db*"' in answer.text
