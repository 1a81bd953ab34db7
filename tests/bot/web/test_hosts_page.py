"""Host pages: last contact, host locks, changes, and no secrets."""

from dataclasses import replace

import pytest

from bot.db import locks
from bot.hosts import pending_hosts
from bot.hosts.pending_hosts import LocalUser, PendingHost, list_pending_host_summaries
from bot.queries.host_status import PendingHostSummary
from bot.web import build_app
from tests.bot.host_contacts import store_contact
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.bot.web.sample_runs import (
    add_pending_run,
    add_requested_run,
    add_sample_runs,
    add_succeeded_run,
    approve,
    start_run,
)
from tests.policies import HOST_KEY

_MINUTE = 60_000_000


def test_hosts_page_lists_hosts_by_area_with_their_last_contact(site: Site):
    with site.database.transaction() as tx:
        store_contact(tx, "lb1", tried_at=tx.now, answered_at=tx.now)
        store_contact(
            tx, "nas1", tried_at=tx.now, answered_at=None, kind="unreachable", error="gone"
        )
    page = Page(site.browser("dora").get("/hosts").text)
    assert [
        page.text.index(area) for area in ("Storage", "The edge", "The web servers")
    ] == sorted(page.text.index(area) for area in ("Storage", "The edge", "The web servers"))
    with site.database.transaction() as tx:
        store_contact(tx, "nas1", tried_at=tx.now, answered_at=tx.now)
    failure = 'title="gone"><time'
    assert failure in site.browser("dora").get("/hosts?status=reachable").text
    assert "Last failure" in Page(site.browser("dora").get("/hosts/nas1").text).text
    for words in (
        *("lb1 : Reachable", "nas1 : Unreachable", "web1 : Never contacted"),
        *("lb1 The edge Reachable", "nas1 Storage Unreachable"),
    ):
        assert words in page.text
    assert page.strange == []


def test_hosts_pages_send_no_query_to_hosts(site: Site):
    browser = site.browser("dora")
    for path in ("/hosts", "/hosts/lb1", "/hosts/lb1?days=90"):
        assert browser.get(path).status_code == 200
    assert site.harness.fleet.asked == 0
    assert site.harness.fleet.sent == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("tag=haproxy", {"lb1", "lb2"}),
        ("area=storage", {"nas1"}),
        ("host=b1", {"lb1", "web1"}),
        ("status=host+key+mismatch", {"lb2"}),
        ("status=never+contacted&tag=haproxy", {"lb1"}),
        ("tag=nothing", set[str]()),
    ],
)
def test_hosts_page_filters_by_tag_area_name_and_status(
    site: Site, query: str, expected: set[str]
):
    with site.database.transaction() as tx:
        store_contact(
            tx, "lb2", tried_at=tx.now, answered_at=None, kind="key", error="another key"
        )
    page = Page(site.browser("dora").get(f"/hosts?{query}").text)
    shown = {link.removeprefix("/hosts/") for link in page.links if link.startswith("/hosts/")}
    assert shown == expected


def test_host_page_shows_a_host_key_mismatch_with_its_fix(site: Site):
    with site.database.transaction() as tx:
        store_contact(tx, "lb1", tried_at=tx.now - _MINUTE, answered_at=tx.now - _MINUTE)
        why = "shows the key SHA256:abc. Find out who answers there <script>alert(1)</script>"
        store_contact(tx, "lb1", tried_at=tx.now, answered_at=None, kind="key", error=why)
    page = Page(site.browser("dora").get("/hosts/lb1").text)
    assert "Mismatch" in page.text
    assert why in page.text
    assert page.strange == []


def test_host_page_shows_the_host_lock_and_the_queued_runs_in_order(site: Site):
    with site.database.transaction() as tx:
        holder = start_run(tx, approve(tx, add_pending_run(tx, add_requested_run(tx, host="lb1"))))
        locks.take_lock(tx, "lb1", holder.id)
        line = [
            approve(tx, add_pending_run(tx, add_requested_run(tx, host="lb1"))) for _ in range(2)
        ]
    browser = site.browser("dora")
    for path in ("/hosts", "/hosts/lb1"):
        text = Page(browser.get(path).text).text
        places = [text.index(f"run {run.id}") for run in (holder, *line) if path == "/hosts"]
        assert places == sorted(places)
        assert "since" in text.lower()
    links = Page(browser.get("/hosts/lb1").text).links
    assert [link for link in links if link == f"/runs/{line[1].id}"]


def test_host_page_lists_the_changes_of_the_host(site: Site):
    with site.database.transaction() as tx:
        done = add_succeeded_run(tx, add_requested_run(tx, host="lb1"))
        other = add_succeeded_run(tx, add_requested_run(tx, host="lb2"))
    page = Page(site.browser("dora").get("/hosts/lb1").text)
    assert f"/runs/{done.id}" in page.links
    assert f"/runs/{other.id}" not in page.links
    # Who allowed it stands beside it.
    assert "Olga Owner" in page.text
    assert "/runs?host=lb1" in page.links


def test_host_page_does_not_show_the_path_of_ssh_keys(site: Site):
    inventory = site.policy / "inventory.yaml"
    inventory.write_text(
        inventory.read_text().replace(
            "{area: storage, tags: [nfs, zfs]}",
            "{area: storage, tags: [zfs], reader: {user: look, key: keys/very-secret-place}}",
        )
    )
    text = site.browser("dora").get("/hosts/nas1").text
    assert "very-secret-place" not in text
    assert "keys/keyturn" not in text
    assert "look" in text


def test_unknown_host_page_suggests_similar_hosts(site: Site):
    answer = site.browser("dora").get("/hosts/lb9")
    assert answer.status_code == 404
    assert "did you mean lb1, lb2?" in answer.text


def test_hosts_page_shows_hosts_pending_confirmation(site: Site):
    somebody = LocalUser(login="ops", uid=1000, machine="bastion")
    entry = {"address": "10.0.3.9", "host_key": HOST_KEY, "area": "web"}
    one = PendingHost(requested_by=somebody, fingerprint="SHA256:abc", entry=entry)
    pending_hosts.store_pending_hosts(site.policy, {"web9": one})
    assert list_pending_host_summaries(site.policy) == [
        PendingHostSummary("web9", "10.0.3.9", "SHA256:abc", "ops on bastion")
    ]
    site.app = build_app(
        replace(site.parts, list_enrolling_hosts=lambda: list_pending_host_summaries(site.policy))
    )
    text = Page(site.browser("dora").get("/hosts").text).text
    assert "Pending confirmation 1 web9 at 10.0.3.9" in text


def test_invalid_enrolling_file_is_read_as_no_pending_hosts(site: Site):
    (site.policy / "enrolling.yaml").write_text("[")
    assert list_pending_host_summaries(site.policy) == []


def test_runs_page_links_to_the_page_of_the_host(site: Site):
    add_sample_runs(site.database)
    assert "/hosts/lb1" in Page(site.browser("dora").get("/runs").text).links
