"""Saved views: filters of the runs page under a name, with a link."""

import pytest

from bot.db import saved_views
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.bot.web.sample_runs import add_sample_runs


def _save_view(
    site: Site, person: str = "dora", name: str = "mine", query: str = "host=lb2"
) -> str:
    answer = site.browser(person).post("/views", data={"name": name, "query": query})
    assert answer.status_code == 303
    return answer.headers["location"]


def test_saved_view_is_stored_and_opened_by_its_link(site: Site):
    add_sample_runs(site.database)
    place = _save_view(site)
    browser = site.browser("dora")
    assert place == "/runs?host=lb2&view=1"
    assert browser.get("/views/1").headers["location"] == place
    page = Page(browser.get(place).text)
    assert "/views/1" in page.links
    assert page.strange == []
    assert "lb1 203.0.113.9" not in page.text


def test_saved_view_keeps_its_time_zone(site: Site):
    place = _save_view(site, query="since=today&zone=Asia/Tokyo&host=lb1")
    assert place == "/runs?host=lb1&since=today&zone=Asia%2FTokyo&view=1"
    assert site.browser("dora").get(place).status_code == 200


def test_saved_view_is_readable_by_others_who_cannot_delete_it(site: Site):
    place = _save_view(site)
    browser = site.browser("olga")
    page = Page(browser.get(browser.get("/views/1").headers["location"]).text)
    assert "View “mine” of Dora Developer" in page.text
    assert "/views/1/delete" not in page.forms
    assert browser.post("/views/1/delete").status_code == 404
    assert site.browser("dora").get("/views/1").headers["location"] == place


def test_saved_view_with_the_same_name_is_replaced(site: Site):
    _save_view(site, query="host=lb1")
    _save_view(site, query="person=adam")
    with site.database.reading() as tx:
        assert [view.query for view in saved_views.list_views(tx, "dora")] == ["person=adam"]


def test_saved_view_is_deleted_by_its_owner(site: Site):
    _save_view(site)
    assert site.browser("dora").post("/views/1/delete").status_code == 303
    assert site.browser("dora").get("/views/1").status_code == 404


def test_saved_view_keeps_only_filters(site: Site):
    place = _save_view(site, query="host=lb1&before=3&next=//evil.test&person=")
    assert place == "/runs?host=lb1&view=1"


def test_saved_view_redirects_only_to_the_runs_page(site: Site):
    with site.database.transaction() as tx:
        saved_views.store_view(tx, person="dora", name="x", query="host=%0d%0aSet-Cookie:x")
    place = site.browser("dora").get("/views/1").headers["location"]
    assert place.startswith("/runs?host=%0d%0a")


@pytest.mark.parametrize("name", ["", "x" * 65, "a\u202eb", "line\x00"])
def test_invalid_name_of_a_saved_view_is_refused(site: Site, name: str):
    answer = site.browser("dora").post("/views", data={"name": name, "query": "host=lb1"})
    assert answer.status_code == 422


def test_number_of_saved_views_per_person_is_limited(site: Site):
    with site.database.transaction() as tx:
        for n in range(saved_views.MOST):
            saved_views.store_view(tx, person="dora", name=f"view {n}", query="")
    answer = site.browser("dora").post("/views", data={"name": "one more", "query": ""})
    assert answer.status_code == 422
    assert "delete one first." in answer.text
    _save_view(site, name="view 1")
    _save_view(site, person="olga", name="my first")


def test_save_view_form_is_shown_for_unsaved_filters_only(site: Site):
    browser = site.browser("dora")
    assert "/views" in Page(browser.get("/runs?host=lb1").text).forms
    assert "/views" not in Page(browser.get("/runs").text).forms
    _save_view(site, query="host=lb1")
    assert "/views" not in Page(browser.get("/runs?host=lb1").text).forms
