"""What open pages follow is read once for all of them, and counted as each inbox counts it."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

from bot.auth import sessions
from bot.db.database import Database
from bot.policy import NoPolicyError, Policy, PolicyProblem
from bot.queries import pending
from bot.web.auth import NotSignedInError
from bot.web.change_feed import ChangeFeed, FeedState, Follower
from tests.bot.harness import Harness
from tests.bot.restricted_view import open_restricted_harness
from tests.bot.test_query_counts import count_statements
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.bot.web.sample_runs import add_pending_run, add_requested_run, add_sample_runs
from tests.toy import SetSwitch, ShowSwitches


def build_feed(harness: Harness, clock: list[float]) -> ChangeFeed:
    return ChangeFeed(
        harness.database,
        harness.policies,
        max_age=1,
        session_seconds=10,
        clock=lambda: clock[0],
    )


def sign_in(database: Database, person: str) -> Follower:
    with database.transaction() as tx:
        return Follower(person, sessions.begin_session(tx, person))


def read(feed: ChangeFeed, follower: Follower) -> FeedState:
    return asyncio.run(feed.read(follower))


def add_pending_runs(database: Database, count: int) -> None:
    with database.transaction() as tx:
        for _ in range(count):
            add_pending_run(tx, add_requested_run(tx))


def count_inboxes(harness: Harness) -> dict[str, int]:
    policy = harness.policies.get_policy()
    counts: dict[str, int] = {}
    for person in policy.organisation.people:
        with harness.database.reading(policy.get_view_rights(person)) as tx:
            counts[person] = pending.read_inbox(tx, policy, person).count
    return counts


def count_waiting(harness: Harness) -> dict[str, int]:
    policy = harness.policies.get_policy()
    with harness.database.reading() as tx:
        return {**pending.count_waiting(tx, policy, policy.organisation.people)}


def test_counts_of_all_people_are_those_of_each_inbox(harness: Harness) -> None:
    add_sample_runs(harness.database)
    asked = harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    harness.service.ask_question(asked.id, person="olga", text="Why this lamp?")
    other = harness.request(SetSwitch(host="lb2", name="lamp", value="on"))
    edited = harness.request(SetSwitch(host="lb1", name="fan", value="on"))
    harness.service.propose_values(
        edited.id, person="olga", changed_values={"value": "dim"}, reason="too loud"
    )
    harness.run_queued_work()
    before = count_inboxes(harness)["dora"]
    with harness.database.reading() as tx:
        end = tx.now + 3600 * 1_000_000
    harness.service.delegations.create_delegation(
        delegator="olga", delegate="stan", ends_at=end, reason="I am away today", source="web"
    )
    assert count_waiting(harness) == count_inboxes(harness)
    assert count_inboxes(harness)["olga"] > 2
    harness.service.withdraw_run(edited.id + 1, person="dora")
    assert count_inboxes(harness)["dora"] == before - 1
    harness.approve(other)
    assert count_waiting(harness) == count_inboxes(harness)


def test_counts_leave_out_what_a_person_may_not_view(tmp_path: Path) -> None:
    with open_restricted_harness(tmp_path) as restricted:
        assert count_waiting(restricted.harness) == count_inboxes(restricted.harness)


def test_every_pending_run_is_in_an_inbox(site: Site) -> None:
    add_pending_runs(site.database, 130)
    assert count_inboxes(site.harness)["olga"] == 130
    browser = site.browser("olga")
    first, last = browser.get("/").text, browser.get("/?page=13").text
    assert "130" in Page(first).text
    # The oldest run is on the last page.
    assert 'id="plan-of-130"' in first
    assert 'id="plan-of-1"' not in first
    assert 'id="plan-of-1"' in last
    assert 'href="/?page=14"' not in last


def test_further_open_pages_take_no_further_statements(harness: Harness) -> None:
    add_pending_runs(harness.database, 3)
    clock = [0.0]
    feed = build_feed(harness, clock)
    pages = [sign_in(harness.database, ("olga", "adam", "stan")[n % 3]) for n in range(60)]

    def count_round(followers: list[Follower]) -> int:
        with count_statements(harness) as counts, ExitStack() as opened:
            for follower in followers:
                opened.enter_context(feed.follow(follower))
            for follower in followers:
                read(feed, follower)
        clock[0] += 100
        return counts.total()

    few = count_round(pages[:3])
    assert count_round(pages) == few


def test_pages_that_see_no_new_pending_run_evaluate_no_rule(harness: Harness) -> None:
    add_pending_runs(harness.database, 5)
    clock = [0.0]
    feed, follower = build_feed(harness, clock), sign_in(harness.database, "olga")
    with feed.follow(follower):
        before = read(feed, follower)
        with count_statements(harness) as idle:
            assert read(feed, follower) is before
        assert not idle
        harness.request(ShowSwitches(host="lb1"))
        clock[0] += 1
        with count_statements(harness) as counts:
            after = read(feed, follower)
    assert after.stamps["olga"] != before.stamps["olga"]
    assert after.waiting is before.waiting
    # The clock and the begin and end; the sessions are checked every ten seconds only.
    assert counts.total() <= 9


def test_page_shows_a_new_pending_run_at_the_next_reading(harness: Harness) -> None:
    clock = [0.0]
    feed, follower = build_feed(harness, clock), sign_in(harness.database, "olga")
    with feed.follow(follower):
        assert read(feed, follower).waiting == {"olga": 0}
        add_pending_runs(harness.database, 1)
        assert read(feed, follower).waiting == {"olga": 0}
        clock[0] += 1
        assert read(feed, follower).waiting == {"olga": 1}
        with harness.database.transaction() as tx:
            sessions.end_session(tx, follower.session)
        clock[0] += 10
        assert read(feed, follower).signed_in == frozenset()


def test_stream_of_changes_names_the_number_and_the_time_to_reload(site: Site) -> None:
    add_pending_runs(site.database, 2)
    answer = site.browser("olga").get("/stream").text
    assert 'event: changed\ndata: {"waiting": 2, "within": 0.1}' in answer


class LookedAtPolicies:
    """A policy, and how often it was looked at."""

    def __init__(self, policy: Policy) -> None:
        self.policy: Policy | None = policy
        self.looks = 0

    def get_policy(self) -> Policy:
        self.looks += 1
        if self.policy is None:
            raise NoPolicyError(PolicyProblem("is damaged", "people.yaml"))
        return self.policy


def test_one_look_for_all_open_pages_ends_those_of_who_has_left(harness: Harness) -> None:
    policies = LookedAtPolicies(harness.policies.get_policy())
    feed = ChangeFeed(harness.database, policies, max_age=1, session_seconds=10)

    async def open_pages() -> None:
        with ExitStack() as opened:
            olga, adam = (
                [opened.enter_context(feed.watch_access(person)) for _ in range(50)]
                for person in ("olga", "adam")
            )
            assert policies.policy is not None
            policies.policy = policies.policy.without_people(["olga"])
            assert isinstance(await olga[0], NotSignedInError)
            assert all(page.done() for page in olga)
            assert not any(page.done() for page in adam)
            assert policies.looks == 1
            policies.policy = None
            assert isinstance(await adam[0], NoPolicyError)
            assert policies.looks == 2
        # Nobody is left to look for.
        await asyncio.sleep(1)
        assert policies.looks <= 3

    asyncio.run(open_pages())
