"""Redundancy pages: services with their margins, and each fault tree."""

import re

import pytest

from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.toy import ShowSwitches, TakeDown

TREE = """\
says: The shop
top: no-balancer
gates:
  no-balancer: {says: No <b>balancer</b> is left, all: [lb1, lb2]}
events:
  lb1: {says: lb1 is down, leg: lb1}
  lb2: {says: lb2 is down, leg: lb2}
"""


@pytest.fixture(autouse=True)
def shop(site: Site) -> None:
    directory = site.harness.policies.path / "trees"
    directory.mkdir()
    (directory / "shop.yaml").write_text(TREE)


def test_redundancy_page_lists_services_with_their_margin(site: Site):
    unread = Page(site.browser("dora").get("/redundancy").text)
    assert "The shop – Not known: Keyturn reads its legs before each change" in unread.text
    site.harness.request(TakeDown(host="lb1", name="lamp", value="on"))
    page = Page(site.browser("dora").get("/redundancy").text)
    assert "The shop 2 Survives 1 more failure – –" in page.text
    assert "/redundancy/shop" in page.links
    assert page.strange == []


def test_leg_is_not_read_yet_when_only_another_run_contacted_its_host(site: Site):
    site.harness.request(ShowSwitches(host="lb1"))
    page = Page(site.browser("dora").get("/redundancy/shop").text)
    assert "lb1 is down Not read yet" in page.text


def test_fault_tree_page_shows_down_hosts_and_hosts_held_by_runs(site: Site):
    run = site.harness.request(TakeDown(host="lb1", name="lamp", value="on"))
    for person in ("olga", "adam"):
        site.harness.service.approve_run(run.id, person=person, digest=run.digest)
    site.harness.run_queued_work()
    site.harness.fleet.refusing.add("lb2")
    site.harness.request(TakeDown(host="lb2", name="lamp", value="on"))
    page = Page(site.browser("dora").get("/redundancy/shop").text)
    assert "Not known: Keyturn reads its legs before each change. 1 minimal cut set" in page.text
    assert f"Held by run {run.id} of Dora Developer since" in page.text
    assert "lb2 lb2 is down Could not be reached at" in page.text
    assert f"/runs/{run.id}" in page.links
    assert "lb1, lb2" in page.text
    assert page.strange == []


def test_hostile_title_stays_text_in_the_fault_tree_diagram(site: Site):
    html = site.browser("dora").get("/redundancy/shop").text
    assert "<b>balancer" not in html
    assert "&lt;b&gt;balancer" in html


def test_unknown_fault_tree_is_not_found(site: Site):
    assert site.browser("dora").get("/redundancy/nothing").status_code == 404


def test_redundancy_page_without_fault_trees_says_so(site: Site):
    (site.harness.policies.path / "trees" / "shop.yaml").unlink()
    assert "No fault trees" in Page(site.browser("dora").get("/redundancy").text).text


def test_run_page_shows_the_cut_set_that_refused_the_change(site: Site):
    site.harness.fleet.refusing.add("lb2")
    run = site.harness.request(TakeDown(host="lb1", name="lamp", value="on"))
    page = Page(site.browser("dora").get(f"/runs/{run.id}").text)
    assert "lb2 could not be reached at" in page.text
    assert "This change would take lb1 down too" in page.text
    assert "cut set shop: lb1, lb2" in page.text


def test_each_heading_of_the_fault_tree_page_names_one_landmark(site: Site):
    html = site.browser("dora").get("/redundancy/shop").text
    names = re.findall(r'aria-labelledby="([^"]+)"', html)
    assert "picture" in names
    assert len(names) == len(set(names))
