"""Standing grants: what they allow, how often, and what they never allow."""

import threading

import pytest
from sqlalchemy import Connection, delete, update

from bot.audit import change_log
from bot.db import grants, tables
from bot.db.database import Database
from bot.db.grants import Grant
from bot.model.errors import InvalidRequestError, NotAllowed
from bot.model.grant_words import NewGrant
from bot.model.run import RequestTerms, Run, State
from bot.model.run_states import is_on_hold
from bot.policy.freezes import FreezeList
from bot.queries import standing_grants as grant_queries
from bot.workflow import standing_grants
from tests.bot.harness import WEB, Harness
from tests.toy import BreakSwitch, SetAll, SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
MINUTE = 60 * 1_000_000
HOUR = 60 * MINUTE


def grant(
    harness: Harness,
    *,
    per_hour: int = 5,
    hosts: str = "lb*",
    words: str = "toy set",
    person: str = "dora",
    giver: str = "olga",
    hours: int = 4,
    **values: str,
) -> Grant:
    with harness.database.reading() as tx:
        wanted = NewGrant(person, words, hosts, per_hour, tx.now + hours * HOUR, values)
    return harness.service.grants.create_grant(
        wanted, granted_by=giver, reason="a busy day", source="slack"
    )


def set_lamp(harness: Harness, value: str, person: str = "dora", host: str = "lb1") -> Run:
    return harness.request(SetSwitch(host=host, name="lamp", value=value), person=person)


def test_standing_grant_runs_a_change_without_an_approval(db_harness: Harness):
    harness = db_harness
    given = grant(harness)
    run = set_lamp(harness, "on")
    assert run.state is State.SUCCEEDED
    assert run.grant_id == given.id
    assert harness.list_entry_kinds(run) == [
        "requested",
        "planned",
        "claimed",
        "grant used",
        "started",
        "step sending",
        "step succeeded",
        "verified",
        "succeeded",
    ]
    with harness.database.reading() as tx:
        used = next(
            one for one in change_log.list_entries_of_run(tx, run.id) if one.kind == "grant used"
        )
    assert {name: used.facts[name] for name in ("grant", "granted_by", "uses", "per_hour")} == {
        "grant": given.id,
        "granted_by": "olga",
        "uses": 1,
        "per_hour": 5,
    }


def test_change_needs_an_approval_when_its_standing_grant_is_used_up(harness: Harness):
    grant(harness, per_hour=2)
    assert [set_lamp(harness, value).state for value in "ab"] == [State.SUCCEEDED] * 2
    third = set_lamp(harness, "c")
    assert third.state is State.PENDING
    assert "Grant 1 has reached its limit of 2 this hour." in third.policy_notes
    assert harness.approve(third).state is State.SUCCEEDED


def test_standing_grant_is_available_again_after_an_hour(
    db_harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    harness = db_harness
    grant(harness, per_hour=1)
    set_lamp(harness, "a")
    move_clock_forward(monkeypatch, HOUR - MINUTE)
    assert set_lamp(harness, "b").state is State.PENDING
    move_clock_forward(monkeypatch, 2 * MINUTE)
    assert set_lamp(harness, "c").state is State.SUCCEEDED


def move_clock_forward(monkeypatch: pytest.MonkeyPatch, microseconds: int) -> None:
    """Put the databases' clock forward."""
    read = Database.read_clock

    def ahead(database: Database, connection: Connection) -> int:
        return read(database, connection) + microseconds

    monkeypatch.setattr(Database, "read_clock", ahead)


class TestDeletedGrantUses:
    """Deleting uses of a grant restores no budget: the signed log counts them."""

    @pytest.fixture
    def robbed(self, harness: Harness) -> Harness:
        grant(harness, per_hour=1)
        assert set_lamp(harness, "a").state is State.SUCCEEDED
        with harness.database.transaction() as tx:
            tx.sql.execute(delete(tables.grant_use))
        return harness

    def test_deleted_uses_of_a_standing_grant_still_count(self, robbed: Harness):
        again = set_lamp(robbed, "b")
        assert (again.state, len(robbed.fleet.sent)) == (State.PENDING, 1)
        with robbed.database.reading() as tx:
            wanting = next(
                one
                for one in change_log.list_entries_of_run(tx, again.id)
                if one.kind == "more approvals needed"
            )
        assert "was used more often than the database lists" in wanting.facts["reason"]

    def test_without_the_log_count_deleted_uses_let_a_standing_grant_be_used_again(
        self, robbed: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(standing_grants, "has_all_uses_counted", _accept_grant)
        assert set_lamp(robbed, "b").state is State.SUCCEEDED

    def test_standing_grant_with_deleted_uses_is_available_again_after_an_hour(
        self, robbed: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        move_clock_forward(monkeypatch, HOUR + MINUTE)
        assert set_lamp(robbed, "b").state is State.SUCCEEDED


def _count_no_uses(*_: object, **__: object) -> int:
    return 0


def _find_no_lost_role(*_: object) -> str:
    return ""


def request_twenty_runs(harness: Harness) -> list[State]:
    """Let twenty requests for one grant of five meet, and return how they stand then."""
    harness.fleet.hosts["lb1"] = {f"s{n}": "off" for n in range(20)}
    numbers = [
        harness.service.request_run(
            SetSwitch(host="lb1", name=f"s{n}", value="on"), RequestTerms("dora", WEB)
        ).id
        for n in range(20)
    ]
    harness.dispatcher.enqueued.clear()
    barrier = threading.Barrier(20)

    def go(number: int) -> None:
        barrier.wait()
        harness.service.advancer.advance_run(number)

    threads = [threading.Thread(target=go, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # PostgreSQL ends a long wait for a lock: on a busy machine such a run goes on when woken.
    harness.service.advancer.wake_stalled_runs()
    harness.run_queued_work()
    return [harness.get_run(number).state for number in numbers]


def test_concurrent_requests_never_exceed_the_limit_of_a_standing_grant(db_harness: Harness):
    harness = db_harness
    given = grant(harness, per_hour=5)
    states = request_twenty_runs(harness)
    assert (states.count(State.SUCCEEDED), states.count(State.PENDING)) == (5, 15)
    assert len(harness.fleet.sent) == 5
    with harness.database.reading() as tx:
        assert grants.count_used(tx, given.id) == 5


def test_gate_alone_enforces_the_limit_of_a_standing_grant(
    db_harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    """Whatever was promised when the plans were shown: it is counted again with the intent."""
    harness = db_harness
    grant(harness, per_hour=5)
    monkeypatch.setattr(grants, "count_taken", _count_no_uses)
    states = request_twenty_runs(harness)
    assert (states.count(State.SUCCEEDED), states.count(State.PENDING)) == (5, 15)
    assert len(harness.fleet.sent) == 5


def test_without_both_counts_requests_exceed_the_limit_of_a_standing_grant(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    """The twin: neither counted when shown nor at the gate, all are let through."""
    grant(harness, per_hour=5)
    monkeypatch.setattr(grants, "count_taken", _count_no_uses)
    monkeypatch.setattr(standing_grants, "get_grant_refusal", _find_no_lost_role)
    assert request_twenty_runs(harness).count(State.SUCCEEDED) == 20


def prepare_granted_run(harness: Harness) -> Run:
    """Return a granted run that was shown and is about to start."""
    run = harness.service.request_run(LAMP_ON, RequestTerms("dora", WEB))
    number = harness.dispatcher.enqueued.pop(0)
    inner = harness.fleet.before_query
    harness.fleet.before_query = lambda host: (inner(host), freeze_area(harness))[0]
    harness.service.advancer.advance_run(number)
    harness.fleet.before_query = inner
    return harness.get_run(run.id)


def freeze_area(harness: Harness) -> None:
    """Freeze the area just after the plan was read, so that the run stays ready."""
    policy = harness.policies.get_policy()
    policy.freezes = ALWAYS


ALWAYS = FreezeList.model_validate(
    {"freezes": [{"name": "a pause", "from": "2020-01-01 00:00", "until": "2099-01-01 00:00"}]}
)


def end_freeze(harness: Harness) -> None:
    harness.policies.get_policy().freezes = FreezeList()
    harness.service.advancer.wake_stalled_runs()
    harness.run_queued_work()


def test_freeze_holds_a_change_with_a_standing_grant(harness: Harness):
    grant(harness)
    run = prepare_granted_run(harness)
    assert run.state is State.QUEUED
    assert is_on_hold(run)
    end_freeze(harness)
    assert harness.get_run(run.id).state is State.SUCCEEDED


@pytest.mark.parametrize("how", ["revoked", "ended", "giver", "forbidden"])
def test_standing_grant_is_checked_again_at_the_gate(harness: Harness, how: str):
    given = grant(harness)
    run = prepare_granted_run(harness)
    assert (run.state, run.grant_id) == (State.QUEUED, given.id)
    if how == "revoked":
        harness.service.grants.revoke_grant(given.id, person="adam", source="slack")
    elif how == "ended":
        with harness.database.transaction() as tx:
            tx.sql.execute(update(tables.standing_grant).values(ends_at=tx.now))
    elif how == "giver":
        areas = harness.policies.path / "areas.yaml"
        areas.write_text(areas.read_text().replace("owners: [olga, adam]", "owners: [adam]"))
    else:
        add_forbid_rule(
            harness, '(principal, action == Action::"request", resource) when { context.granted }'
        )
    end_freeze(harness)
    ended = harness.get_run(run.id)
    assert ended.state in {State.PENDING, State.STALE}
    assert (ended.grant_id, harness.fleet.sent) == (None, []) or ended.state is State.STALE
    assert harness.fleet.sent == []


def add_forbid_rule(harness: Harness, rule: str) -> None:
    rules = harness.policies.path / "policy.cedar"
    rules.write_text(f'{rules.read_text()}\n@id("new")\nforbid {rule};\n')


def test_without_the_gate_check_a_revoked_standing_grant_lets_a_run_start(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    """The twin of the above."""
    given = grant(harness)
    run = prepare_granted_run(harness)
    harness.service.grants.revoke_grant(given.id, person="olga", source="slack")
    monkeypatch.setattr(standing_grants, "get_grant_refusal", _find_no_lost_role)
    end_freeze(harness)
    assert harness.get_run(run.id).state is State.SUCCEEDED


def test_run_stops_before_the_next_step_when_its_standing_grant_is_revoked(harness: Harness):
    given = grant(harness, words="toy set all")

    def revoke(_host: str, words: str) -> None:
        if "fan" in words:
            harness.service.grants.revoke_grant(given.id, person="olga", source="slack")

    harness.fleet.after_send = revoke
    run = harness.request(SetAll(host="lb1", value="on"))
    assert run.state is State.FAILED
    assert "Stopped before step 2: Grant 1 was revoked" in run.summary
    assert harness.fleet.sent == [("lb1", "set fan on")]


@pytest.mark.parametrize(
    ("host", "name", "value", "person"),
    [
        ("lb2", "lamp", "on", "dora"),
        ("lb1", "fan", "on", "dora"),
        ("lb1", "lamp", "dim", "dora"),
        ("lb1", "lamp", "on", "adam"),
    ],
)
def test_standing_grant_covers_only_its_person_hosts_and_values(
    harness: Harness, host: str, name: str, value: str, person: str
):
    harness.fleet.hosts["lb2"]["fan"] = "off"
    grant(harness, hosts="lb1", name="la*", value="on")
    run = harness.request(SetSwitch(host=host, name=name, value=value), person=person)
    assert run.grant_id is None
    if person == "dora":
        assert run.state is State.PENDING


def test_standing_grant_covers_neither_an_undo_nor_several_hosts(harness: Harness):
    grant(harness)
    done = set_lamp(harness, "on")
    undo = harness.service.request_undo(done.id, RequestTerms("dora", WEB))
    requests = [SetSwitch(host=host, name="lamp", value="x") for host in ("lb1", "lb2")]
    whole = harness.service.request_on_hosts(
        requests, RequestTerms("dora", WEB), host_pattern="lb*"
    )
    harness.run_queued_work()
    assert {harness.get_run(one.id).state for one in (undo, whole)} == {State.PENDING}


def test_standing_grant_gives_no_right_to_request(harness: Harness):
    grant(harness)
    add_forbid_rule(
        harness, '(principal == Person::"dora", action == Action::"request", resource)'
    )
    assert set_lamp(harness, "on").state is State.REFUSED


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"person": "olga"}, "you cannot grant yourself"),
        ({"person": "nobody"}, "not in the policy"),
        ({"giver": "stan"}, "not from an owner"),
        ({"giver": "dora", "person": "stan"}, "not from an owner|may not ask"),
        ({"words": "toy break"}, "cannot be undone"),
        ({"words": "toy show"}, "is not a change"),
        ({"hosts": "xy*"}, "no host matches"),
        ({"hosts": "*"}, "may not ask|not from an owner"),
        ({"per_hour": 0}, "from 1 to 100"),
        ({"per_hour": 101}, "from 1 to 100"),
        ({"hours": 0}, "within 30 days"),
        ({"hours": 31 * 24}, "within 30 days"),
        ({"colour": "red"}, "has no field colour: use name, value"),
        ({"host": "lb1"}, "has no field host"),
        ({"person": "adam", "hosts": "lb1"}, "Adam Admin needs no approval"),
    ],
)
def test_invalid_standing_grant_is_rejected_with_the_reason(
    harness: Harness, change: dict[str, str], why: str
):
    with pytest.raises((InvalidRequestError, NotAllowed), match=why):
        grant(harness, **change)  # pyright: ignore[reportArgumentType] - any of its values
    assert "grant created" not in harness.list_entry_kinds()


def test_standing_grant_is_refused_for_two_approvals_a_factor_or_signatures(
    harness: Harness,
):
    rules = harness.policies.path / "policy.cedar"
    starter = rules.read_text()
    rules.write_text(starter.replace('@approvals("1")', '@approvals("2")', 1))
    with pytest.raises(NotAllowed, match="2 approvals"):
        grant(harness)
    rules.write_text(starter.replace('@approvals("1")', '@stepup\n@approvals("1")', 1))
    with pytest.raises(NotAllowed, match="second factor"):
        grant(harness)
    signed = '@signed("approver")\n@approvals("1")'
    rules.write_text(starter.replace('@approvals("1")', signed, 1))
    with pytest.raises(NotAllowed, match="cannot cover changes that require signatures"):
        grant(harness)


def test_standing_grant_does_not_cover_an_irreversible_change(harness: Harness):
    with harness.database.transaction() as tx:
        grants.add_grant(
            tx,
            NewGrant("dora", "toy break", "lb*", 5, tx.now + HOUR),
            giver="olga",
            reason="",
        )
    assert harness.request(BreakSwitch(host="lb1", name="lamp")).state is State.PENDING


def test_standing_grant_is_revoked_by_its_granter_other_owners_or_its_person(harness: Harness):
    made = [grant(harness) for _ in range(3)]
    for given, person in zip(made, ("olga", "adam", "dora"), strict=True):
        with pytest.raises(
            NotAllowed, match="only Olga Owner, other owners and Dora Developer can"
        ):
            harness.service.grants.revoke_grant(given.id, person="stan", source="web")
        harness.service.grants.revoke_grant(given.id, person=person, source="web")
        with pytest.raises(InvalidRequestError, match="ended already"):
            harness.service.grants.revoke_grant(given.id, person=person, source="web")
    assert harness.list_entry_kinds().count("grant revoked") == 3


def test_altered_standing_grant_that_the_log_does_not_confirm_is_ignored(harness: Harness):
    """Whoever writes to the tables alone grants nothing, and widens nothing."""
    grant(harness, per_hour=1)
    with harness.database.transaction() as tx:
        tx.sql.execute(update(tables.standing_grant).values(per_hour=100))
    assert set_lamp(harness, "on").state is State.PENDING


def test_without_the_log_check_an_altered_standing_grant_lets_a_run_start(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    """The twin of the above."""
    for module in (standing_grants, grant_queries):
        monkeypatch.setattr(module, "is_grant_logged", _accept_grant)
    grant(harness, per_hour=1)
    with harness.database.transaction() as tx:
        tx.sql.execute(update(tables.standing_grant).values(per_hour=100))
    assert set_lamp(harness, "on").state is State.SUCCEEDED


def _accept_grant(*_: object, **__: object) -> bool:
    return True
