"""Diagrams drawn from check reports, with a description in words."""

from collections.abc import Sequence

import pytest

from bot.db.database import Transaction
from bot.model.run import RequestOrigin, Run, State
from bot.web.diagrams import build_gauge, build_tree
from runbooks import Report, Table
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.bot.web.sample_runs import add_check, add_requested_run

MEMBERS = ("Member", "Link", "Mbit/s")


def a_check(words: str, columns: Sequence[str], *rows: Sequence[str], **fields: str) -> Run:
    report = Report("a bond", table=Table(columns, rows))
    return Run(
        1, 1, State.SUCCEEDED, words, "check", fields, "nas1", "x", "dora", RequestOrigin("web"), "", 0,  # noqa: E501
        report=report,
    )  # fmt: skip


def test_bond_check_is_drawn_as_a_tree_of_its_members() -> None:
    rows = (("eth0", "up", "10000"), ("eth1", "down", "0"))
    drawn = build_tree(a_check("bond check", MEMBERS, *rows, bond="bond0"))
    assert drawn is not None
    assert drawn.description == "bond0: 1 of 2 members have a link (eth0 up, eth1 down)"
    assert [branch.is_good for branch in drawn.branches] == [True, False]


def test_zfs_pool_and_hsrp_gateway_are_drawn_as_trees() -> None:
    pool = build_tree(
        a_check("zfs scrub status", ("Device", "State"), ("sda", "ONLINE"), pool="tank")
    )
    assert pool is not None
    assert pool.description == "tank: 1 of 1 devices work (sda ONLINE)"
    gateway = build_tree(
        a_check("hsrp check", ("Router", "State"), ("sw1", "Active"), ("sw2", "Init"))
    )
    assert gateway is not None
    assert gateway.description.startswith("the gateway: 1 of 2 routers can forward")


@pytest.mark.parametrize(
    "run",
    [
        a_check("uptime check", MEMBERS, ("eth0", "up", "1")),
        a_check("bond check", ("Host", *MEMBERS), ("nas1", "eth0", "up", "1")),
        a_check("bond check", MEMBERS),
        a_check("bond check", MEMBERS, ("eth0",)),
        a_check("bond check", MEMBERS, *[(f"eth{n}", "up", "1") for n in range(25)]),
    ],
)
def test_report_that_does_not_fit_a_diagram_is_not_drawn(run: Run) -> None:
    assert build_tree(run) is None


@pytest.mark.parametrize(
    ("summary", "percent"),
    [
        ("tank: scrub running, 30.3 % done, 16 s left", 30.3),
        ("tank: scrub running, 999 % done", 100.0),
        ("tank: never scrubbed", None),
    ],
)
def test_scrub_progress_is_drawn_as_a_gauge(summary: str, percent: float | None) -> None:
    drawn = build_gauge(Report(summary))
    assert (drawn and drawn.percent) == percent


def a_bond(tx: Transaction, name: str = "eth1") -> int:
    rows = (("eth0", "up", "10000"), (name, "down", "0"))
    report = Report(
        "bond0: scrub running, 30.3 % done",
        healthy=False,
        findings=(f"{name} has no link: check its cable",),
        table=Table(MEMBERS, rows),
    )
    run = add_check(tx, report)
    tx.sql.exec_driver_sql(
        "UPDATE run SET runbook = 'bond check', field_values = '{\"bond\":\"bond0\"}' "
        "WHERE id = ?",
        (run.id,),
    )
    return run.id


def test_hostile_device_name_stays_text_in_the_diagram(site: Site) -> None:
    with site.database.transaction() as tx:
        add_requested_run(tx)
        number = a_bond(tx, "</text><script>")
    html = site.browser("dora").get(f"/runs/{number}").text
    assert "&lt;/text&gt;&lt;scrip…" in html or "&lt;/text&gt;&lt;script&gt;" in html
    assert "<script>" not in html.replace("<script src=", "").replace("<script defer", "")
    words = Page(html).text
    assert "bond0: 1 of 2 members have a link" in words
    assert "30.3 % done" in words
