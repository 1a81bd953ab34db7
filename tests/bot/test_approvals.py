"""Whose approvals count, how many are required, of whom, and for how long."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import update

from bot.audit import change_log
from bot.db import tables
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.run import RequestTerms, Run, State
from bot.model.signing import SigningKey
from bot.policy import PolicyRequest
from bot.queries.pending import read_inbox
from bot.queries.run_view import build_run_view
from bot.slack.labels import build_run_label
from bot.slack.run_facts import SlackRunViewBuilder
from tests.bot.clock import Clock
from tests.bot.harness import WEB, Harness, open_harness
from tests.bot.signing.soft_passkey import SoftPasskey
from tests.policies import TEAM, get_starter_rules, give_signing_key
from tests.toy import BreakSwitch, SetAll, SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
FAN_ON = SetSwitch(host="lb1", name="fan", value="on")
MINUTE = 60_000_000
HOUR = 60 * MINUTE
EVERYBODY = ("dora", "olga", "adam", "stan", "sven")
OWNERS = ("olga", "adam")

ANYBODY_APPROVES = """
@id("approve") permit (principal, action in [Action::"approve", Action::"view"], resource);
@id("ask") {notes}
permit (principal, action == Action::"request", resource) {when};
"""


@contextmanager
def _harness(directory: Path, rules: str | None = None) -> Generator[tuple[Harness, Clock]]:
    directory.mkdir(exist_ok=True)
    clock = Clock(f"sqlite:///{directory / 'keyturn.db'}", SigningKey.create())
    with open_harness(directory, rules=rules, database=clock) as harness:
        people = harness.policies.path / "people.yaml"
        people.write_text(
            people.read_text()
            + "  sven: {name: Sven Security, roles: [security, administrator]}\n"
        )
        yield harness, clock


def _build_rules(notes: str, when: str = "") -> str:
    return ANYBODY_APPROVES.format(notes=notes, when=when)


def _cast_approval(harness: Harness, run: Run, person: str, reason: str = "") -> Run:
    harness.service.approve_run(run.id, person=person, digest=run.digest, reason=reason)
    return harness.get_run(run.id)


def _set_editors(harness: Harness, run: Run, *people: str) -> None:
    with harness.database.transaction() as tx:
        ids = '["' + '", "'.join(people) + '"]'
        tx.sql.execute(update(tables.run).where(tables.run.c.id == run.id).values(editors=ids))


def _never(_request: PolicyRequest, _person: str) -> bool:
    return False


def _can_approve(harness: Harness, run: Run, person: str) -> bool:
    try:
        _cast_approval(harness, run, person)
    except NotAllowed:
        return False
    return True


class TestApprovers:
    @pytest.mark.parametrize("editor", ["", *OWNERS])
    @pytest.mark.parametrize("asker", ["dora", *OWNERS])
    def test_approval_is_refused_when_requester_approves(
        self, tmp_path: Path, asker: str, editor: str
    ):
        with _harness(tmp_path) as (harness, _):
            for person in EVERYBODY:
                run = harness.request(BreakSwitch(host="lb1", name="lamp"), person=asker)
                _set_editors(harness, run, *([editor] if editor else []))
                able = person in OWNERS and person not in {asker, editor}
                assert _can_approve(harness, run, person) is able, (asker, editor, person)
                if run.state is State.PENDING:
                    harness.service.withdraw_run(run.id, person=asker)

    def test_without_the_requester_check_a_requester_approves_their_own_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        with _harness(tmp_path) as (harness, _):
            run = harness.request(BreakSwitch(host="lb1", name="lamp"), person="olga")
            monkeypatch.setattr(PolicyRequest, "is_made_by", _never)
            assert _cast_approval(harness, run, "olga").state is State.QUEUED

    def test_requester_cannot_approve_with_a_second_slack_account(self, tmp_path: Path):
        with _harness(tmp_path) as (harness, _):
            people = harness.policies.path / "people.yaml"
            known = "[{team: T0KEYTURN, user: U0OLGA}]"
            two = known.replace("]", ", {team: T0KEYTURN, user: U0OLGA2}]")
            people.write_text(people.read_text().replace(known, two))
            household = harness.policies.get_policy().organisation
            person = household.find_by_slack(team="T0KEYTURN", enterprise=None, user="U0OLGA2")
            assert person
            run = harness.request(BreakSwitch(host="lb1", name="lamp"), person="olga")
            assert not _can_approve(harness, run, person.id)

    def test_approval_of_one_person_counts_once_when_two_are_required(self, tmp_path: Path):
        with _harness(tmp_path, _build_rules('@approvals("2") @from("owners")')) as (harness, _):
            run = harness.request(LAMP_ON)
            assert _cast_approval(harness, run, "olga").state is State.PENDING
            with pytest.raises(TooLate):
                _cast_approval(harness, run, "olga")
            assert _cast_approval(harness, run, "adam").state is State.QUEUED


class TestRequiredApprovals:
    ONE_OF_EACH = _build_rules('@approvals("2") @from("owners & role:security")')

    def test_rule_for_one_approval_per_group_needs_one_from_each_group(self, tmp_path: Path):
        with _harness(tmp_path, self.ONE_OF_EACH) as (harness, _):
            run = harness.request(LAMP_ON)
            assert run.approver_groups == ("area:edge", "role:security")
            assert _cast_approval(harness, run, "olga").state is State.PENDING
            assert _cast_approval(harness, run, "adam").state is State.PENDING
            assert _cast_approval(harness, run, "sven").state is State.QUEUED
            harness.run_queued_work()
            assert harness.get_run(run.id).state is State.SUCCEEDED

    def test_rule_for_two_approvals_accepts_two_from_the_same_group(self, tmp_path: Path):
        rules = _build_rules('@approvals("2") @from("owners, role:security")')
        with _harness(tmp_path, rules) as (harness, _):
            run = harness.request(LAMP_ON)
            _cast_approval(harness, run, "olga")
            assert _cast_approval(harness, run, "adam").state is State.QUEUED

    def test_gate_refuses_a_run_when_an_approver_group_is_no_longer_covered(self, tmp_path: Path):
        with _harness(tmp_path, self.ONE_OF_EACH) as (harness, _):
            run = harness.request(LAMP_ON)
            for person in ("olga", "sven"):
                _cast_approval(harness, run, person)
            people = harness.policies.path / "people.yaml"
            people.write_text(
                people.read_text().replace("roles: [security, administrator]", "roles: []")
                + "roles: [security]\n"
            )
            harness.run_queued_work()
            ended = harness.get_run(run.id)
            assert ended.state is State.REFUSED
            assert harness.fleet.sent == []

    def test_approval_does_not_count_at_the_gate_when_the_approver_lost_the_role(
        self, tmp_path: Path
    ):
        with _harness(tmp_path) as (harness, _):
            run = harness.request(LAMP_ON)
            _cast_approval(harness, run, "olga")
            areas = harness.policies.path / "areas.yaml"
            areas.write_text(areas.read_text().replace("[olga, adam]", "[adam]"))
            harness.run_queued_work()
            assert harness.get_run(run.id).state is State.REFUSED
            assert harness.fleet.sent == []

    @pytest.mark.parametrize(
        ("roles", "state", "why"),
        [
            ("[]", State.REFUSED, "Dora Developer may not request this any more"),
            # The twin: the same files are written anew, and she keeps her role.
            ("[developer]", State.SUCCEEDED, "Verified"),
        ],
    )
    def test_a_run_is_refused_when_its_requester_lost_the_role(
        self, tmp_path: Path, roles: str, state: State, why: str
    ):
        with _harness(tmp_path) as (harness, _):
            run = harness.request(LAMP_ON)
            _cast_approval(harness, run, "olga")
            people = harness.policies.path / "people.yaml"
            hers = people.read_text().replace(
                "Developer, roles: [developer]", "Developer, roles: %s"
            )
            assert "%s" in hers
            # Rules may go on to speak of a role that nobody has.
            people.write_text("roles: [developer]\n" + hers % roles)
            harness.run_queued_work()
            ended = harness.get_run(run.id)
            assert (ended.state, why in ended.summary) == (state, True), ended.summary
            assert bool(harness.fleet.sent) == (state is State.SUCCEEDED)

    def test_overriding_rule_wins_over_stricter_permit_rules(self, tmp_path: Path):
        rules = get_starter_rules() + (
            '@id("lamps") @overrides @approvals("0") permit (principal, '
            'action == Action::"request", resource) when { context.runbook == "toy set" };'
        )
        with _harness(tmp_path, rules) as (harness, _):
            assert harness.request(LAMP_ON).state is State.SUCCEEDED
        with _harness(tmp_path / "twin", rules.replace("@overrides", "")) as (harness, _):
            assert harness.request(LAMP_ON).state is State.PENDING

    def test_overriding_rule_never_wins_over_a_forbid_rule(self, tmp_path: Path):
        rules = get_starter_rules() + (
            '@id("lamps") @overrides permit (principal, action == Action::"request", resource);'
            '@id("never") forbid (principal, action == Action::"request", resource);'
        )
        with _harness(tmp_path, rules) as (harness, _):
            assert harness.request(LAMP_ON).state is State.REFUSED


class TestReasons:
    RULES = _build_rules('@approvals("1") @from("owners") @reason("required")')

    def test_request_without_a_reason_is_rejected_when_a_rule_requires_one(self, tmp_path: Path):
        with _harness(tmp_path, self.RULES) as (harness, _):
            with pytest.raises(InvalidRequestError, match="requires a reason"):
                harness.request(LAMP_ON)
            assert harness.list_entry_kinds() == []
            assert harness.request(LAMP_ON, reason="it is dark").state is State.PENDING

    def test_approval_without_a_reason_is_rejected_when_a_rule_requires_one(self, tmp_path: Path):
        with _harness(tmp_path, self.RULES) as (harness, _):
            run = harness.request(LAMP_ON, reason="it is dark")
            with pytest.raises(
                InvalidRequestError, match="the policy requires a reason for this approval"
            ):
                _cast_approval(harness, run, "olga")
            with pytest.raises(NotAllowed):
                _cast_approval(harness, run, "stan")
            assert _cast_approval(harness, run, "olga", "I saw it").state is State.QUEUED

    def test_approval_needs_no_reason_when_no_rule_requires_one(self, tmp_path: Path):
        with _harness(tmp_path, self.RULES.replace("@reason", "// @reason")) as (harness, _):
            assert _cast_approval(harness, harness.request(LAMP_ON), "olga").state is State.QUEUED


class TestChangedRequirements:
    """Rules that require two approvals from a certain time on."""

    NIGHT = """
    @id("night") @approvals("2") @from("owners")
    permit (principal, action == Action::"request", resource)
    when { context.now >= datetime("2100-01-01T00:00:00Z") };
    """
    RULES = _build_rules('@approvals("1") @from("owners")') + NIGHT

    def _to_the_night(self, clock: Clock) -> None:
        with clock.reading() as tx:
            clock.ahead += 4_102_444_800_000_000 - tx.now

    def _to_the_evening(self, clock: Clock) -> None:
        """Begin so shortly before that no request ends until then: only the rules decide."""
        self._to_the_night(clock)
        clock.ahead -= 120 * MINUTE

    def test_queued_run_needs_more_approvals_when_the_rules_became_stricter(self, tmp_path: Path):
        with _harness(tmp_path, self.RULES) as (harness, clock):
            self._to_the_evening(clock)
            run = harness.request(LAMP_ON)
            assert _cast_approval(harness, run, "olga").state is State.QUEUED
            self._to_the_night(clock)
            harness.run_queued_work()
            again = harness.get_run(run.id)
            assert (again.state, again.required_approvals) == (State.PENDING, 2)
            assert harness.fleet.sent == []
            assert "more approvals needed" in harness.list_entry_kinds(run)
            assert _cast_approval(harness, run, "adam").required_approvals == 2
            harness.run_queued_work()
            assert harness.get_run(run.id).state is State.SUCCEEDED

    def test_run_starts_after_one_approval_before_the_stricter_hours_begin(self, tmp_path: Path):
        with _harness(tmp_path, self.RULES) as (harness, _):
            assert harness.approve(harness.request(LAMP_ON)).state is State.SUCCEEDED

    def test_run_keeps_its_required_approvals_when_the_rules_become_weaker(self, tmp_path: Path):
        rules = _build_rules('@approvals("2") @from("owners")', "when { context.first_time }") + (
            '@id("known") @approvals("1") @from("owners") permit (principal, '
            'action == Action::"request", resource) unless { context.first_time };'
        )
        with _harness(tmp_path, rules) as (harness, _):
            first, second = harness.request(LAMP_ON), harness.request(FAN_ON)
            for person in OWNERS:
                _cast_approval(harness, first, person)
            harness.run_queued_work()
            assert harness.get_run(first.id).state is State.SUCCEEDED
            # By now it is not new any more, but two were wanted when it was shown.
            assert _cast_approval(harness, second, "olga").state is State.PENDING
            # The twin: what is asked from now on takes one.
            third = harness.request(SetSwitch(host="lb2", name="lamp", value="on"))
            assert _cast_approval(harness, third, "olga").state is State.QUEUED

    def test_running_run_finishes_when_stricter_hours_begin_between_two_steps(
        self, tmp_path: Path
    ):
        with _harness(tmp_path, self.RULES) as (harness, clock):
            harness.fleet.after_send = lambda _host, _words: self._to_the_night(clock)
            ended = harness.approve(harness.request(SetAll(host="lb1", value="on")))
            assert ended.state is State.SUCCEEDED
            assert len(harness.fleet.sent) == 2

    def test_rules_can_compare_the_number_of_hosts_of_a_request(self, tmp_path: Path):
        many = (
            '@id("many") forbid (principal, action == Action::"request", resource) '
            "when { context.hosts > 1 };"
        )
        with _harness(tmp_path, _build_rules('@approvals("1") @from("owners")') + many) as (
            harness,
            _,
        ):
            assert harness.request(LAMP_ON).state is State.PENDING
            both = [SetSwitch(host=host, name="lamp", value="on") for host in ("lb1", "lb2")]
            whole = harness.service.request_on_hosts(
                both, RequestTerms("dora", WEB), host_pattern="lb*"
            )
            assert whole.state is State.REFUSED


class TestApprovalExpiry:
    def test_approval_is_refused_when_the_request_expired_by_the_database_clock(
        self, tmp_path: Path
    ):
        with _harness(tmp_path) as (harness, clock):
            run = harness.request(LAMP_ON)
            clock.ahead = harness.context.approval_timeout + MINUTE
            with pytest.raises(TooLate, match="expired"):
                _cast_approval(harness, run, "olga")
            harness.service.advancer.expire_runs()
            assert harness.get_run(run.id).state is State.EXPIRED

    def test_approval_extends_the_expiry_of_a_run_from_the_time_it_was_given(self, tmp_path: Path):
        with _harness(tmp_path) as (harness, clock):
            run = harness.request(LAMP_ON)
            clock.ahead = harness.context.approval_timeout - MINUTE
            ready = _cast_approval(harness, run, "olga")
            assert ready.expires_at
            assert ready.expires_at > (run.expires_at or 0)
            clock.ahead += harness.context.start_timeout - MINUTE
            harness.run_queued_work()
            assert harness.get_run(run.id).state is State.SUCCEEDED

    def test_approved_run_expires_when_it_does_not_start_in_time(self, tmp_path: Path):
        with _harness(tmp_path) as (harness, clock):
            run = harness.request(LAMP_ON)
            _cast_approval(harness, run, "olga")
            clock.ahead = harness.context.start_timeout + MINUTE
            harness.run_queued_work()
            assert harness.get_run(run.id).state is State.EXPIRED
            assert harness.fleet.sent == []


class TestReminders:
    RULES = _build_rules(
        '@approvals("1") @from("owners") @remind("10m") @escalate("role:security")'
    )

    def test_approvers_are_reminded_once_before_the_run_escalates_to_the_next_group(
        self, tmp_path: Path
    ):
        with _harness(tmp_path, self.RULES) as (harness, clock):
            run = harness.request(LAMP_ON)
            assert harness.service.advancer.remind_approvers() == []
            clock.ahead = 11 * MINUTE
            assert [reminder.id for reminder in harness.service.advancer.remind_approvers()] == [
                run.id
            ]
            assert harness.service.advancer.remind_approvers() == []
            assert not _can_approve(harness, run, "sven")
            clock.ahead = 21 * MINUTE
            assert [reminder.id for reminder in harness.service.advancer.remind_approvers()] == [
                run.id
            ]
            assert harness.service.advancer.remind_approvers() == []
            assert harness.list_entry_kinds(run)[-2:] == ["approval refused", "escalated"]
            assert _cast_approval(harness, run, "sven").state is State.QUEUED
            harness.run_queued_work()
            assert harness.get_run(run.id).state is State.SUCCEEDED

    def test_reminder_entry_in_the_change_log_names_the_notified_people(self, tmp_path: Path):
        with _harness(tmp_path, self.RULES) as (harness, clock):
            run = harness.request(LAMP_ON)
            clock.ahead = 11 * MINUTE
            harness.service.advancer.remind_approvers()
            with harness.database.reading() as tx:
                entry = change_log.get_last_entry_of_run(tx, run.id)
            assert entry
            assert (entry.kind, entry.facts["people"]) == ("reminded", ["adam", "olga"])

    def test_run_without_an_escalation_group_is_reminded_once_and_never_escalates(
        self, tmp_path: Path
    ):
        with _harness(tmp_path) as (harness, clock):
            run = harness.request(LAMP_ON)
            clock.ahead = 2 * HOUR
            assert len(harness.service.advancer.remind_approvers()) == 1
            assert harness.service.advancer.remind_approvers() == []
            assert not _can_approve(harness, run, "sven")

    def test_approvers_are_not_reminded_of_a_decided_run(self, tmp_path: Path):
        with _harness(tmp_path, self.RULES) as (harness, clock):
            harness.approve(harness.request(LAMP_ON))
            clock.ahead = HOUR
            assert harness.service.advancer.remind_approvers() == []


class TestPolicyEntries:
    def test_policy_change_is_logged_once_with_the_changed_files(self, harness: Harness):
        harness.service.advancer.record_policy_change()
        harness.service.advancer.record_policy_change()
        areas = harness.policies.path / "areas.yaml"
        areas.write_text(areas.read_text() + "# a remark\n")
        harness.service.advancer.record_policy_change()
        with harness.database.reading() as tx:
            entry = change_log.get_last_entry_of_kind(tx, "policy changed")
        assert harness.list_entry_kinds().count("policy changed") == 2
        assert entry
        assert entry.facts["changed"] == ["areas.yaml"]
        assert entry.facts["old"] != entry.facts["new"] == harness.policies.get_policy().version

    def test_policy_change_is_logged_with_the_signing_keys_that_came_and_went(
        self, harness: Harness
    ):
        key, other = SoftPasskey().public, SoftPasskey().public
        people = harness.policies.path / "people.yaml"
        bare = people.read_text()
        logged: list[tuple[object, object]] = []

        def record() -> None:
            harness.service.advancer.record_policy_change()
            with harness.database.reading() as tx:
                entry = change_log.get_last_entry_of_kind(tx, "policy changed")
            assert entry
            logged.append((entry.facts.get("added_keys"), entry.facts.get("removed_keys")))

        give_signing_key(harness.policies.path, "olga", key.line)
        record()
        people.write_text(bare)
        give_signing_key(harness.policies.path, "adam", other.line)
        record()
        people.write_text(people.read_text() + "# a remark\n")
        record()
        assert logged[0] == ({"olga": [key.fingerprint]}, None)
        assert logged[1] == ({"adam": [other.fingerprint]}, {"olga": [key.fingerprint]})
        assert logged[2] == (None, None)

    def test_invalid_policy_and_its_repair_are_logged_once_each(
        self, harness: Harness, caplog: pytest.LogCaptureFixture
    ):
        harness.service.advancer.record_policy_change()
        rules = harness.policies.path / "policy.cedar"
        good = rules.read_text()
        rules.write_text("permit (")
        harness.service.advancer.record_policy_change()
        harness.service.advancer.record_policy_change()
        assert [record.levelname for record in caplog.records] == ["CRITICAL"]
        rules.write_text(good)
        harness.service.advancer.record_policy_change()
        assert [kind for kind in harness.list_entry_kinds() if kind.startswith("policy")] == [
            "policy changed",
            "policy invalid",
            "policy changed",
        ]


def test_pending_run_shows_the_number_of_approvals_that_the_rules_require_now(tmp_path: Path):
    with _harness(tmp_path) as (harness, _):
        run = harness.request(LAMP_ON)
        rules = harness.policies.path / "policy.cedar"
        rules.write_text(get_starter_rules().replace('@approvals("1")', '@approvals("2")', 1))
        policy = harness.policies.get_policy()
        with harness.database.reading() as tx:
            (listed,) = read_inbox(tx, policy, "olga").runs
            view = build_run_view(tx, run.id, policy)
            card = SlackRunViewBuilder(harness.policies, team=TEAM, base_url="")
            label = build_run_label(card.build_slack_run_view(tx, run.id))
        assert (run.required_approvals, listed.required_approvals) == (1, 2)
        assert (view.given_approvals, view.missing_approvals) == (0, 2)
        assert view.run.required_approvals == 2
        assert label.text.startswith("0 of 2 approvals from ")
