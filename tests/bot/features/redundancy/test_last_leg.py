"""The redundancy guard of the last leg, from request to release, on each database."""

import threading
from dataclasses import replace

import pytest
from sqlalchemy import update

from bot.audit import change_log
from bot.db import tables
from bot.features.redundancy import claims, readings, rows, status
from bot.model.errors import InvalidRequestError, NoSuchPersonError, NotAllowed
from bot.model.run import RefusedBy, RequestTerms, Run, State
from bot.model.times import MINUTE
from bot.model.waiting import Waiting, WaitingFor
from bot.queries.run_timeline import build_run_events
from bot.service import KeyturnService
from runbooks import Leg, Report, Table
from tests.bot.harness import WEB, Harness
from tests.toy import SetSwitch, ShowSwitches, TakeDown


@pytest.fixture
def harness(db_harness: Harness) -> Harness:
    """A harness whose two balancers carry one service."""
    inventory = db_harness.policies.path / "inventory.yaml"
    inventory.write_text(inventory.read_text() + "redundant: [lb1, lb2]\n")
    return db_harness


def build_take_down(host: str, value: str = "on") -> TakeDown:
    return TakeDown(host=host, name="lamp", value=value)


def approve(harness: Harness, run: Run) -> Run:
    """Give both approvals that the starter policy wants for the last leg."""
    for person in ("olga", "adam"):
        harness.service.approve_run(run.id, person=person, digest=run.digest)
    harness.run_queued_work()
    return harness.get_run(run.id)


def lose_host(harness: Harness, host: str) -> None:
    harness.fleet.refusing.add(host)


def list_claims(harness: Harness) -> list[tuple[str, int]]:
    with harness.database.reading() as tx:
        return [(claim.event, claim.run) for claim in rows.list_claims(tx)]


def release_claims(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_SETTLE", 0)
    monkeypatch.setattr(claims, "_CHECK_INTERVAL", 0)
    claims.release_due_claims(harness.context)
    harness.run_queued_work()


def test_plan_notes_the_remaining_redundancy_margin(harness: Harness):
    run = harness.request(build_take_down("lb1"))
    assert (run.state, run.required_approvals) == (State.PENDING, 2)
    assert run.plan
    assert run.plan.takes_down == ["lb1"]
    assert "Redundancy of lb1-lb2: margin 2 → 1 without lb1 (cut set lb1, lb2)." in run.plan.notes


def test_change_that_takes_nothing_down_has_no_redundancy_note(harness: Harness):
    run = harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    assert run.plan
    assert not run.plan.takes_down
    assert not run.plan.notes


def test_last_leg_is_refused_at_planning_by_name(harness: Harness):
    lose_host(harness, "lb2")
    run = harness.request(build_take_down("lb1"))
    assert run.state is State.REFUSED
    assert "lb2 could not be reached at 20" in run.summary
    assert "UTC: lb2 refused the connection: check that sshd is running. This" in run.summary
    assert "This change would take lb1 down too" in run.summary
    assert "cut set lb1-lb2: lb1, lb2" in run.summary
    assert harness.fleet.sent == []


def test_last_leg_is_refused_at_the_gate_when_the_other_fails_after_approval(harness: Harness):
    run = harness.request(build_take_down("lb1"))
    lose_host(harness, "lb2")
    ended = approve(harness, run)
    assert ended.state is State.REFUSED
    assert harness.fleet.sent == []


def test_repair_of_the_failed_leg_is_allowed(harness: Harness):
    lose_host(harness, "lb2")
    run = harness.request(build_take_down("lb2"))
    assert run.state is State.PENDING
    assert approve(harness, run).state is State.SUCCEEDED


def test_second_leg_is_refused_while_the_first_is_claimed(harness: Harness):
    first, second = (
        harness.request(build_take_down("lb1")),
        harness.request(build_take_down("lb2")),
    )
    assert approve(harness, first).state is State.SUCCEEDED
    assert list_claims(harness) == [("lb1", first.id)]
    refused = approve(harness, second)
    assert refused.state is State.REFUSED
    assert f"lb1 is held by run {first.id} of Dora Developer since" in refused.summary


def test_leg_claim_is_released_after_the_run_and_a_settle_time(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    run = harness.request(build_take_down("lb1"))
    approve(harness, run)
    claims.release_due_claims(harness.context)
    assert list_claims(harness) == [("lb1", run.id)]
    lose_host(harness, "lb1")
    release_claims(harness, monkeypatch)
    assert list_claims(harness) == [("lb1", run.id)]
    harness.fleet.refusing.clear()
    release_claims(harness, monkeypatch)
    assert list_claims(harness) == []
    assert [kind for kind in harness.list_entry_kinds(run) if kind.startswith("leg")] == [
        "legs claimed",
        "leg released",
    ]
    assert approve(harness, harness.request(build_take_down("lb2"))).state is State.SUCCEEDED


def test_leg_claim_is_released_by_a_person_with_a_reason(harness: Harness):
    run = harness.request(build_take_down("lb1"))
    approve(harness, run)
    count = harness.service.bind(claims.LegActions).release_leg(
        "lb1-lb2", "lb1", person="adam", reason="replaced by lb3"
    )
    assert (count, list_claims(harness)) == (1, [])
    with harness.database.reading() as tx:
        entry = change_log.list_entries_of_run(tx, run.id)[-1]
    assert (entry.kind, entry.person, entry.facts["reason"]) == (
        "leg released",
        "adam",
        "replaced by lb3",
    )


@pytest.mark.parametrize(
    ("person", "error", "message"),
    [
        ("nobody-at-all", NoSuchPersonError, "nobody-at-all is not in the policy"),
        ("dora", NotAllowed, "only an owner of the edge can release lb1"),
        ("stan", NotAllowed, "only an owner of the edge can release lb1"),
    ],
)
def test_leg_claim_is_not_released_by_people_who_do_not_own_its_area(
    harness: Harness, person: str, error: type[Exception], message: str
):
    run = harness.request(build_take_down("lb1"))
    approve(harness, run)
    with pytest.raises(error, match=message):
        harness.service.bind(claims.LegActions).release_leg(
            "lb1-lb2", "lb1", person=person, reason="replaced by lb3"
        )
    assert list_claims(harness) == [("lb1", run.id)]
    kinds = harness.list_entry_kinds(run)
    assert "leg released" not in kinds
    assert ("leg release refused" in kinds) == (error is NotAllowed)


def test_leg_claim_is_not_released_without_a_reason(harness: Harness):
    with pytest.raises(InvalidRequestError, match="reason"):
        harness.service.bind(claims.LegActions).release_leg(
            "lb1-lb2", "lb1", person="adam", reason=" "
        )


def test_request_for_both_legs_changes_one_after_the_other(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    parent = harness.service.request_on_hosts(
        [build_take_down("lb1"), build_take_down("lb2")],
        RequestTerms("dora", WEB),
        host_pattern="lb*",
    )
    harness.run_queued_work()
    approve(harness, harness.get_run(parent.id))
    assert harness.fleet.sent == [("lb1", "set lamp on")]
    assert harness.get_run(parent.id).waiting == Waiting(WaitingFor.CLAIM)
    age_readings(harness, 60)
    release_claims(harness, monkeypatch)
    with harness.database.reading() as tx:
        events = build_run_events(change_log.list_entries_of_run(tx, parent.id), str)
    assert [event.title for event in events if "ave" in event.title.split()[0]] == [
        "Wave started: lb1",
        "Wave started: lb2",
    ]
    assert harness.fleet.sent == [("lb1", "set lamp on"), ("lb2", "set lamp on")]
    assert harness.get_run(parent.id).state is State.SUCCEEDED


def test_request_for_three_legs_needs_no_more_approvals_once_it_has_begun(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    """What its own hosts have claimed counts for the waves, not for the approvals."""
    add_third_host(harness)
    parent = harness.service.request_on_hosts(
        [build_take_down(host) for host in ("lb1", "lb2", "lb3")],
        RequestTerms("dora", WEB),
        host_pattern="lb*",
    )
    harness.run_queued_work()
    assert harness.get_run(parent.id).required_approvals == 1
    harness.approve(harness.get_run(parent.id))
    release_claims(harness, monkeypatch)
    release_claims(harness, monkeypatch)
    assert sorted(host for host, _ in harness.fleet.sent) == ["lb1", "lb2", "lb3"]
    assert harness.get_run(parent.id).state is State.SUCCEEDED


@pytest.mark.parametrize("attempt", range(4))
def test_two_runs_never_take_both_legs(harness: Harness, attempt: int):
    runs = [harness.request(build_take_down(host, f"v{attempt}")) for host in ("lb1", "lb2")]
    for run in runs:
        for person in ("olga", "adam"):
            harness.service.approve_run(run.id, person=person, digest=run.digest)
    harness.dispatcher.enqueued.clear()
    _advance_together(harness.service, runs)
    assert len(harness.fleet.sent) == 1
    assert sorted(harness.get_run(run.id).state for run in runs) == [
        State.REFUSED,
        State.SUCCEEDED,
    ]


def test_without_the_claims_two_runs_take_both_legs(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    """The twin of the test above."""

    def find_nothing(*_args: object, **_options: object) -> str:
        return ""

    monkeypatch.setattr("bot.features.redundancy.status.find_refusal", find_nothing)
    runs = [harness.request(build_take_down(host)) for host in ("lb1", "lb2")]
    for run in runs:
        approve(harness, run)
    assert len(harness.fleet.sent) == 2


def _advance_together(service: KeyturnService, runs: list[Run]) -> None:
    barrier = threading.Barrier(len(runs))

    def advance(run: Run) -> None:
        barrier.wait()
        service.advancer.advance_run(run.id)

    threads = [threading.Thread(target=advance, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# --- what is not known now is not up ---


def age_readings(harness: Harness, minutes: int) -> None:
    at = tables.event_reading.c.read_at
    with harness.database.transaction() as tx:
        tx.sql.execute(update(tables.event_reading).values(read_at=at - minutes * MINUTE))


def find_refusal(harness: Harness, leg: str) -> str:
    with harness.database.reading() as tx:
        policy = harness.policies.get_policy()
        return status.find_refusal(tx, policy, [Leg.parse(leg)], run=0)


def add_third_host(harness: Harness) -> None:
    inventory = harness.policies.path / "inventory.yaml"
    text = inventory.read_text().partition("redundant:")[0]
    hosts = f"{text}  lb3: {{area: edge, tags: [haproxy]}}\n"
    inventory.write_text(f"{hosts}redundant: [lb1, lb2, lb3]\n")
    harness.fleet.hosts["lb3"] = {"lamp": "off"}


def test_leg_that_was_never_read_or_not_lately_does_not_stand(harness: Harness):
    assert find_refusal(harness, "lb1").startswith("lb2 is not read yet. This change would")
    readings.refresh_readings(harness.context, harness.policies.get_policy(), [Leg("lb1")])
    assert find_refusal(harness, "lb1") == ""
    age_readings(harness, 2)
    assert "lb2 is unknown: last contacted 20" in find_refusal(harness, "lb1")


def test_host_that_only_another_site_reaches_does_not_stand(harness: Harness):
    inventory = harness.policies.path / "inventory.yaml"
    inventory.write_text(inventory.read_text().replace("  lb2: {", "  lb2: {site: far, "))
    context = replace(harness.context, sites=frozenset({"main"}))
    readings.refresh_readings(context, harness.policies.get_policy(), [Leg("lb1")])
    assert find_refusal(harness, "lb1").startswith("lb2 is not read yet")


def test_other_hosts_are_contacted_at_the_same_time(harness: Harness):
    add_third_host(harness)
    together = threading.Barrier(3)

    def wait_for_others(_host: str) -> None:
        together.wait(60)

    harness.fleet.before_query = wait_for_others
    readings.refresh_readings(harness.context, harness.policies.get_policy(), [Leg("lb1")])
    assert find_refusal(harness, "lb1") == ""


def test_host_that_does_not_answer_in_time_does_not_stand(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(readings, "_MAX_SECONDS", 0.2)
    is_over = threading.Event()

    def hang(host: str) -> None:
        if host == "lb2":
            is_over.wait(60)

    harness.fleet.before_query = hang
    run = harness.request(build_take_down("lb1"))
    is_over.set()
    assert run.state is State.REFUSED
    assert "UTC: no answer in 0.2 s. This change would take lb1 down too" in run.summary


def test_approval_after_hours_counts_by_the_last_readings_and_the_gate_reads_again(
    harness: Harness,
):
    add_third_host(harness)
    run = harness.request(build_take_down("lb1"))
    assert run.required_approvals == 1
    age_readings(harness, 600)
    assert harness.approve(run).state is State.SUCCEEDED


def test_leg_that_dies_after_the_plan_makes_the_gate_ask_for_more_approvals(harness: Harness):
    add_third_host(harness)
    run = harness.request(build_take_down("lb1"))
    lose_host(harness, "lb3")
    waiting = harness.approve(run)
    assert (waiting.state, waiting.required_approvals) == (State.PENDING, 2)
    assert harness.fleet.sent == []


BOND = """\
top: net-down
gates:
  net-down: {says: No leg of the bond is left, all: [leg0, leg1]}
events:
  leg0: {leg: nas1/eth0, check: bond check nas1, when: Link of eth0 != up}
  leg1: {leg: nas1/eth1, check: bond check nas1, when: Link of eth1 != up}
"""


def record_bond(harness: Harness, **links: str) -> None:
    table = Table(("Member", "Link"), list(links.items()))
    report = Report("bond0", healthy="down" not in links.values(), table=table)
    with harness.database.transaction() as tx:
        policy = harness.policies.get_policy()
        readings.record_report(tx, policy, "bond check nas1", report, run=None)


@pytest.fixture
def bond(harness: Harness) -> Harness:
    """The harness with a tree over the two legs of a bond, which one check reads."""
    trees = harness.policies.path / "trees"
    trees.mkdir()
    (trees / "net.yaml").write_text(BOND)
    return harness


def test_leg_of_a_bond_that_still_stands_is_kept_when_the_other_is_down(bond: Harness):
    record_bond(bond, eth0="up", eth1="up")
    assert find_refusal(bond, "nas1/eth0") == find_refusal(bond, "nas1/eth1") == ""
    record_bond(bond, eth0="down", eth1="up")
    refusal = find_refusal(bond, "nas1/eth1")
    assert refusal.startswith("leg0 is down since 20")
    assert "would take leg1 down too: No leg of the bond is left" in refusal
    assert find_refusal(bond, "nas1/eth0") == ""
    record_bond(bond, eth0="down", eth1="down")
    assert find_refusal(bond, "nas1") == ""


def test_check_that_its_runbook_refuses_leaves_no_earlier_reading_in_use(bond: Harness):
    record_bond(bond, eth0="up", eth1="up")
    assert "could not be checked" not in find_refusal(bond, "nas1/eth0")
    asked = bond.request(ShowSwitches(host="lb1"))
    for refused_by, is_unknown in ((RefusedBy.POLICY, False), (RefusedBy.RUNBOOK, True)):
        refused = replace(
            asked,
            request="bond check nas1",
            state=State.REFUSED,
            refused_by=refused_by,
            report=None,
            summary="nas1 has no bond",
        )
        with bond.database.transaction() as tx:
            readings.record_check(bond.context, tx, refused)
        assert ("could not be checked" in find_refusal(bond, "nas1/eth0")) == is_unknown


def test_row_that_the_check_does_not_have_is_named_with_those_that_it_has(bond: Harness):
    record_bond(bond, eth0="up", eth2="up")
    refusal = find_refusal(bond, "nas1/eth0")
    assert refusal.startswith("leg1 could not be checked at 20")
    assert "`Link of eth1 != up`: the table has no row eth1; it has eth0, eth2. This" in refusal
    with bond.database.reading() as tx:
        (result,) = status.check_trees(tx, bond.policies.get_policy())
    assert result.level == "warning"
    assert "leg1 of net is unknown since 20" in result.message
    assert "the table has no row eth1; it has eth0, eth2" in result.message


def test_finding_without_a_condition_does_not_make_its_leg_free_to_take(bond: Harness):
    """Both services run; each was restarted by systemd once, which is a finding."""
    readings.refresh_readings(bond.context, bond.policies.get_policy(), [Leg("lb1")])
    events = "".join(
        f"  {host}: {{leg: {host}/haproxy, check: service status {host} haproxy}}\n"
        for host in ("lb1", "lb2")
    )
    tree = f"top: down\ngates:\n  down: {{all: [lb1, lb2]}}\nevents:\n{events}"
    (bond.policies.path / "trees" / "shop.yaml").write_text(tree)
    with bond.database.transaction() as tx:
        policy = bond.policies.get_policy()
        for host in ("lb1", "lb2"):
            report = Report("haproxy was restarted once.", healthy=False)
            check = f"service status {host} haproxy"
            readings.record_report(tx, policy, check, report, run=None)
    refusal = find_refusal(bond, "lb1/haproxy")
    assert refusal.startswith("lb2 needs attention since 20")
    assert "UTC: haproxy was restarted once. This change would take lb1 down too" in refusal


# --- a fault tree that is not valid ---


def break_tree(harness: Harness) -> None:
    (harness.policies.path / "trees" / "net.yaml").write_text(BOND.replace("leg1]", "leg7]"))


_PROBLEM = "trees/net.yaml, line 3: leg7 is not a gate, event or tree"


def test_invalid_fault_tree_stops_only_changes_that_take_something_down(bond: Harness):
    break_tree(bond)
    assert bond.request(ShowSwitches(host="lb1")).state is State.SUCCEEDED
    harmless = bond.request(SetSwitch(host="lb1", name="lamp", value="on"))
    assert bond.approve(harmless).state is State.SUCCEEDED
    refused = bond.request(build_take_down("lb2"))
    assert refused.state is State.REFUSED
    assert _PROBLEM in refused.summary
    with bond.database.reading() as tx:
        (result,) = status.check_trees(tx, bond.policies.get_policy())
    assert (result.level, _PROBLEM in result.message) == ("error", True)


def test_fault_tree_that_becomes_invalid_after_approval_refuses_at_the_gate(bond: Harness):
    run = bond.request(build_take_down("lb1"))
    break_tree(bond)
    ended = approve(bond, run)
    assert ended.state is State.REFUSED
    assert _PROBLEM in ended.summary
    assert bond.fleet.sent == []


def test_claim_is_kept_while_its_fault_tree_is_not_valid(
    bond: Harness, monkeypatch: pytest.MonkeyPatch
):
    done = bond.request(ShowSwitches(host="lb1")).id
    with bond.database.transaction() as tx:
        rows.add_claim(tx, "net", "leg0", done)
    break_tree(bond)
    release_claims(bond, monkeypatch)
    assert list_claims(bond) == [("leg0", done)]
    (bond.policies.path / "trees" / "net.yaml").unlink()
    release_claims(bond, monkeypatch)
    assert list_claims(bond) == []


# --- overriding the guard ---


def request_override(
    harness: Harness, cut_set: str, reason: str = "lb2 comes back on Monday"
) -> Run:
    run = harness.service.request_run(
        build_take_down("lb1"), RequestTerms("dora", WEB, reason, guard_override=cut_set)
    )
    harness.run_queued_work()
    return harness.get_run(run.id)


def test_override_of_the_named_cut_set_takes_the_last_leg_with_approvals(harness: Harness):
    lose_host(harness, "lb2")
    run = request_override(harness, "lb1-lb2: lb2, lb1")
    assert (run.state, run.required_approvals) == (State.PENDING, 2)
    assert run.plan
    assert run.plan.guard_override == "lb1-lb2: lb1, lb2"
    assert "Overrides the redundancy guard for the cut set lb1-lb2: lb1, lb2." in run.plan.notes
    assert approve(harness, run).state is State.SUCCEEDED


def test_row_that_was_given_an_override_after_approval_is_refused(harness: Harness):
    run = harness.request(build_take_down("lb1"))
    lose_host(harness, "lb2")
    with harness.database.transaction() as tx:
        tx.sql.execute(update(tables.run).values(guard_override="lb1-lb2: lb1, lb2"))
    assert approve(harness, run).state in {State.REFUSED, State.STALE}
    assert harness.fleet.sent == []


@pytest.mark.parametrize(
    ("cut_set", "reason", "message"),
    [
        ("lb1-lb2: lb1, lb2", "", "needs a reason"),
        ("lb1, lb2", "why", "write the cut set as the refusal does"),
        ("shop: lb1, lb2", "why", "trees: lb1-lb2"),
        ("lb1-lb2: lb1", "why", "lb1 is not a cut set of lb1-lb2"),
    ],
)
def test_override_that_names_no_cut_set_is_rejected(
    harness: Harness, cut_set: str, reason: str, message: str
):
    with pytest.raises(InvalidRequestError, match=message):
        request_override(harness, cut_set, reason)
