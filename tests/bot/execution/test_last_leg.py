"""The redundancy guard of the last leg, from request to release, on each database."""

import threading

import pytest
from sqlalchemy import update

from bot.audit import change_log
from bot.db import redundancy as rows
from bot.db import schedules, tables
from bot.db.host_contacts import LastContact, store_contacts
from bot.execution import leg_claims
from bot.model.errors import InvalidRequestError
from bot.model.run import Run, State
from bot.model.schedule import ScheduleTiming, parse_cron
from bot.queries.run_timeline import build_run_events
from bot.service import KeyturnService
from tests.bot.clock import make_due_now
from tests.bot.harness import WEB, Harness
from tests.toy import SetSwitch, TakeDown


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
    with harness.database.transaction() as tx:
        lost = LastContact(host, tx.now, None, tx.now, "unreachable", "no route")
        store_contacts(tx, [lost])


def list_claims(harness: Harness) -> list[tuple[str, int]]:
    with harness.database.reading() as tx:
        return [(claim.event, claim.run) for claim in rows.list_claims(tx)]


def release_claims(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leg_claims, "_SETTLE", 0)
    leg_claims.release_due_claims(harness.context)
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
    assert "lb2 is unreachable since" in run.summary
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
    leg_claims.release_due_claims(harness.context)
    assert list_claims(harness) == [("lb1", run.id)]
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
    count = harness.service.release_leg("lb1-lb2", "lb1", person="adam", reason="replaced by lb3")
    assert (count, list_claims(harness)) == (1, [])
    with harness.database.reading() as tx:
        entry = change_log.list_entries_of_run(tx, run.id)[-1]
    assert (entry.kind, entry.person, entry.facts["reason"]) == (
        "leg released",
        "adam",
        "replaced by lb3",
    )


def test_request_for_both_legs_changes_one_after_the_other(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    parent = harness.service.request_on_hosts(
        [build_take_down("lb1"), build_take_down("lb2")],
        host_pattern="lb*",
        person="dora",
        origin=WEB,
    )
    harness.run_queued_work()
    approve(harness, harness.get_run(parent.id))
    assert harness.fleet.sent == [("lb1", "set lamp on")]
    assert harness.get_run(parent.id).summary.startswith("Waits until the hosts changed before")
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
    inventory = harness.policies.path / "inventory.yaml"
    text = inventory.read_text().partition("redundant:")[0]
    hosts = f"{text}  lb3: {{area: edge, tags: [haproxy]}}\n"
    inventory.write_text(f"{hosts}redundant: [lb1, lb2, lb3]\n")
    harness.fleet.hosts["lb3"] = {"lamp": "off"}
    parent = harness.service.request_on_hosts(
        [build_take_down(host) for host in ("lb1", "lb2", "lb3")],
        host_pattern="lb*",
        person="dora",
        origin=WEB,
    )
    harness.run_queued_work()
    assert harness.get_run(parent.id).required_approvals == 1
    harness.approve(harness.get_run(parent.id))
    release_claims(harness, monkeypatch)
    release_claims(harness, monkeypatch)
    assert sorted(host for host, _ in harness.fleet.sent) == ["lb1", "lb2", "lb3"]
    assert harness.get_run(parent.id).state is State.SUCCEEDED


@pytest.mark.parametrize("attempt", range(8))
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

    monkeypatch.setattr("bot.queries.redundancy.find_refusal", find_nothing)
    runs = [harness.request(build_take_down(host)) for host in ("lb1", "lb2")]
    for run in runs:
        approve(harness, run)
    assert len(harness.fleet.sent) == 2


def _advance_together(service: KeyturnService, runs: list[Run]) -> None:
    barrier = threading.Barrier(len(runs))

    def advance(run: Run) -> None:
        barrier.wait()
        service.advance_run(run.id)

    threads = [threading.Thread(target=advance, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# --- overriding the guard ---


def request_override(
    harness: Harness, cut_set: str, reason: str = "lb2 comes back on Monday"
) -> Run:
    run = harness.service.request_run(
        build_take_down("lb1"), person="dora", origin=WEB, reason=reason, guard_override=cut_set
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


def test_scheduled_run_of_the_last_leg_is_refused(harness: Harness):
    timing = ScheduleTiming("nightly", parse_cron("0 3 * * *", "UTC"))
    run = harness.service.schedules.request_schedule(
        [build_take_down("lb1")], host_pattern="", timing=timing, person="dora", origin=WEB
    )
    harness.run_queued_work()
    schedule = approve(harness, harness.get_run(run.id))
    assert schedule.state is State.SUCCEEDED
    lose_host(harness, "lb2")
    with harness.database.reading() as tx:
        (made,) = schedules.list_schedules(tx)
    make_due_now(harness, made)
    harness.service.fire_due_schedules()
    harness.run_queued_work()
    fired = harness.get_run(run.id + 1)
    assert fired.state is State.REFUSED
    assert "This change would take lb1 down too" in fired.summary
    assert harness.fleet.sent == []
