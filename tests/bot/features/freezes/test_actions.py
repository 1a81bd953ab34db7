"""Freezes that people order: whom they hold, how long, who may, and what the log says."""

import pytest
from sqlalchemy import update

from bot.audit import change_log, events
from bot.db import tables
from bot.features.freezes.actions import LONGEST_DAYS, FreezeActions
from bot.features.freezes.rows import FreezeRow, NoSuchFreezeError
from bot.model.errors import InvalidRequestError, NotAllowed
from bot.model.run import RequestTerms, State
from bot.model.run_states import is_on_hold
from bot.model.times import DAY, HOUR, to_datetime
from bot.model.waiting import describe_freeze
from tests.bot.harness import WEB, Harness
from tests.toy import SetAll, SetSwitch, ShowSwitches


def order(
    harness: Harness,
    what: str,
    person: str = "olga",
    *,
    span: int = HOUR,
    reason: str = "the fair",
) -> FreezeRow:
    with harness.database.reading() as tx:
        until = tx.now + span
    return harness.service.bind(FreezeActions).order_freeze(
        what, person=person, until=until, reason=reason, source="web"
    )


def end(harness: Harness, number: int, person: str = "olga") -> None:
    harness.service.bind(FreezeActions).end_freeze(
        number, person=person, reason="it is over", source="web"
    )


def test_ordered_freeze_holds_an_approved_change_until_a_person_ends_it(harness: Harness):
    """The plan stays as it was approved: it starts without another approval."""
    run = harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    freeze = order(harness, "lb*")
    held = harness.approve(run)
    assert (held.state, is_on_hold(held)) == (State.QUEUED, True)
    assert held.waiting
    said = describe_freeze(held.waiting)
    assert said.startswith("lb1 is frozen until")
    assert said.endswith("(Olga Owner: the fair)")
    assert harness.fleet.sent == []
    harness.service.advancer.wake_stalled_runs()
    assert harness.dispatcher.enqueued == []
    end(harness, freeze.id)
    harness.service.advancer.wake_stalled_runs()
    harness.run_queued_work()
    ended = harness.get_run(run.id)
    assert (ended.state, ended.digest) == (State.SUCCEEDED, run.digest)


def test_ordered_freeze_ends_by_itself(harness: Harness):
    order(harness, "lb1", span=HOUR)
    with harness.database.transaction() as tx:
        tx.sql.execute(update(tables.ordered_freeze).values(ends_at=tx.now))
    done = harness.approve(harness.request(SetSwitch(host="lb1", name="lamp", value="on")))
    assert done.state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("what", "host", "is_held"),
    [
        ("lb1", "lb1", True),
        ("lb1", "lb2", False),
        ("LB*", "lb2", True),
        ("@haproxy", "lb2", True),
        ("@haproxy", "web1", False),
        ("web1,lb2", "lb2", True),
        ("web1, lb2", "lb1", False),
        ("edge", "lb1", True),
        ("edge,web", "web1", True),
        ("edge", "web1", False),
        ("*", "nas1", True),
    ],
)
def test_freeze_holds_the_hosts_that_were_typed_and_no_other(
    harness: Harness, what: str, host: str, is_held: bool
):
    order(harness, what)
    policy = harness.policies.get_policy()
    with harness.database.reading() as tx:
        found = policy.find_freeze([host], runbook="toy set", now=tx.now)
    assert bool(found) is is_held


def test_check_runs_during_an_ordered_freeze(harness: Harness):
    order(harness, "*")
    assert harness.request(ShowSwitches(host="lb1")).state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("what", "span", "reason", "says"),
    [
        ("db*", HOUR, "the fair", "no host matches 'db*'"),
        ("lb1,,lb2", HOUR, "the fair", "no host matches ''"),
        ("lb1;reboot", HOUR, "the fair", "no host matches"),
        ("@nothing", HOUR, "the fair", "no host matches"),
        (",".join(["lb1"] * 51), HOUR, "the fair", "at most 50 hosts"),
        ("lb1", HOUR, "x", "a reason of at least 3 characters"),
        ("lb1", -HOUR, "the fair", f"within {LONGEST_DAYS} days"),
        ("lb1", LONGEST_DAYS * DAY + HOUR, "the fair", "add a longer one to freezes.yaml"),
    ],
)
def test_order_that_makes_no_sense_is_refused_with_what_to_do(
    harness: Harness, what: str, span: int, reason: str, says: str
):
    with pytest.raises(InvalidRequestError) as refused:
        order(harness, what, span=span, reason=reason)
    assert says in str(refused.value)
    assert "freeze ordered" not in harness.list_entry_kinds()


def test_only_owners_of_every_area_freeze_and_end(harness: Harness):
    """Dora owns the web servers, and no other area."""
    areas = harness.policies.path / "areas.yaml"
    areas.write_text(areas.read_text().replace("owners: [olga]", "owners: [dora]"))
    with pytest.raises(NotAllowed, match="only owners of the edge"):
        order(harness, "web1,lb1", "dora")
    freeze = order(harness, "web*", "dora")
    other = order(harness, "lb1", "olga")
    with pytest.raises(NotAllowed, match="only owners of the edge"):
        end(harness, other.id, "dora")
    # Administrators may stop everything, and so end this.
    end(harness, freeze.id, "olga")
    assert "freeze refused" in harness.list_entry_kinds()
    with pytest.raises(NoSuchFreezeError):
        end(harness, freeze.id, "olga")


def test_log_says_who_froze_what_until_when_and_why(harness: Harness):
    freeze = order(harness, "lb1,web1")
    end(harness, freeze.id)
    with harness.database.reading() as tx:
        ordered, ended = [
            (entry.person, entry.event)
            for entry in change_log.list_entries_after(tx, 0)
            if entry.kind.startswith("freeze")
        ]
    assert ordered == (
        "olga",
        events.FreezeOrdered(
            freeze=freeze.id,
            what="lb1 and web1",
            hosts=("lb1", "web1"),
            areas=("edge", "web"),
            until=freeze.ends_at,
            source="web",
            reason="the fair",
        ),
    )
    assert isinstance(ended[1], events.FreezeEnded)
    assert (ended[1].ordered_by, ended[1].reason) == ("olga", "it is over")


def test_running_change_is_not_interrupted_by_a_freeze(harness: Harness):
    """Rules that forbid changes of frozen hosts would otherwise stop it at its next step."""
    rules = harness.policies.path / "policy.cedar"
    rules.write_text(
        f'{rules.read_text()}\n@id("no-change-of-frozen-hosts")\n'
        'forbid (principal, action == Action::"request", resource)\n'
        'when { context.kind == "change" && context.frozen };\n'
    )
    run = harness.request(SetAll(host="lb1", value="on"))
    assert run.step_count == 2
    ordered: list[FreezeRow] = []

    def freeze_once(_host: str, _words: str) -> None:
        if not ordered:
            ordered.append(order(harness, "lb1"))

    harness.fleet.before_send = freeze_once
    assert harness.approve(run).state is State.SUCCEEDED
    assert ordered


def test_freeze_of_an_area_that_is_gone_holds_no_other(harness: Harness):
    """Its hosts may belong to another area by now, whose owners did not order it."""
    order(harness, "web")
    for name, old, new in (
        ("areas.yaml", "  web: {title: the web servers, owners: [olga]}\n", ""),
        ("inventory.yaml", "area: web", "area: edge"),
    ):
        file = harness.policies.path / name
        file.write_text(file.read_text().replace(old, new))
    with harness.database.reading() as tx:
        now = to_datetime(tx.now)
    assert harness.policies.get_policy().list_freeze_periods(now) == []


def test_request_for_several_hosts_waits_as_a_whole_for_one_that_is_frozen(harness: Harness):
    order(harness, "lb2")
    requests = [SetSwitch(host=host, name="lamp", value="on") for host in ("lb1", "lb2")]
    run = harness.service.request_on_hosts(requests, RequestTerms("dora", WEB), host_pattern="lb*")
    harness.run_queued_work()
    held = harness.approve(harness.get_run(run.id))
    assert is_on_hold(held)
    assert held.waiting
    assert describe_freeze(held.waiting).startswith("lb2 is frozen until")
    assert harness.fleet.sent == []
