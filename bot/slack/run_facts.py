"""A story: all that is told of one run, gathered from the database and the policy."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bot.audit import change_log
from bot.db import schedules
from bot.db.break_glass import BreakGlass
from bot.db.database import Transaction
from bot.model.run import Decision, Run, State, StepRecord
from bot.model.view_rights import ViewRights, create_own_runs_only
from bot.policy import NoPolicyError, Person, Policy, PolicySource
from bot.policy.people import Area
from bot.workflow import erasure
from bot.workflow.run_view import RunView, build_run_view
from bot.workflow.schedule_facts import ScheduleDetails


@dataclass(frozen=True)
class Approver:
    """Somebody who could turn the second key. user: U…, "" without an account in our Slack.

    on_behalf_of: the name of the owner in whose stead only they could.
    """

    name: str
    slack_user: str = ""
    on_behalf_of: str = ""


@dataclass(frozen=True)
class UsedGrant:
    """The grant that stood in for an approval. giver: a name. left: how many after this one."""

    grant_id: int
    granted_by: str
    uses_left: int
    per_hour: int


@dataclass(frozen=True)
class DeclinedErasure:
    """An owner's no to erasing what was answered. user: who asked, U…, or "". by: a name.

    seq: the entry that says so.
    """

    entry_number: int
    slack_user: str
    declined_by: str
    reason: str


@dataclass(frozen=True)
class SlackRunView:
    """One run as it is now.

    names: of people, by their ids. area: its title. channel: of its area, C…, or "".
    whose: "the owners of the edge". missing: how many more approvals it takes, if known.
    asker: the asker's Slack user, or "". page: address, or "".
    sealed: the run's last entry in the change log, by its number and the start of its hash.
    quiet: a schedule asked for it, and it has not ended otherwise than last time.
    hosts_done, under_way: of a request for several hosts: how many are done, and which are not yet
    but have begun.
    glass: whether its asker means to break it, or has. owners: of its area.
    declined: the last request to erase its output, if that was.
    frozen: why it will wait once it is approved, if a freeze holds it now.
    tries: how often telling of it has failed since it last succeeded.
    schedule: what is approved, of a request for a schedule.
    proposals: the open counter-proposals for it, by their numbers.
    now: microseconds, by the database's clock.
    """

    run: Run
    decisions: Sequence[Decision] = ()
    step_records: Sequence[StepRecord] = ()
    person_names: Mapping[str, str] = field(default_factory=dict[str, str])
    area_title: str = ""
    channel: str = ""
    approvals_from: str = ""
    missing_approvals: int | None = None
    approvers: Sequence[Approver] = ()
    used_grant: UsedGrant | None = None
    requester: str = ""
    page_url: str = ""
    log_reference: str = ""
    is_quiet: bool = False
    ended_children_count: int = 0
    unfinished_hosts: Sequence[str] = ()
    break_glass: BreakGlass | None = None
    owners: Sequence[Approver] = ()
    declined_erasure: DeclinedErasure | None = None
    freeze_after_approval: str = ""
    attempts: int = 0
    schedule: ScheduleDetails | None = None
    proposals: Sequence[int] = ()
    now: int = 0

    def get_person_name(self, person: str) -> str:
        return self.person_names.get(person, person)

    @property
    def approvals(self) -> Sequence[Decision]:
        return [vote for vote in self.decisions if vote.approves]

    @property
    def is_refused_at_once(self) -> bool:
        """Whether it ended in the transaction that recorded it: its asker had that as answer."""
        return self.run.ended_at == self.run.requested_at


class SlackRunViewBuilder:
    """Tells the story of any run. team: our Slack workspace. base_url: of the web pages, or ""."""

    def __init__(self, policies: PolicySource, *, team: str, base_url: str) -> None:
        self._policies, self.workspace = policies, team
        self.base_url = base_url.rstrip("/")

    def build_slack_run_view(self, tx: Transaction, run_id: int) -> SlackRunView:
        """Raises NoSuchRun. Without a valid policy the story has what the run itself knows."""
        try:
            policy = self._policies.get_policy()
        except NoPolicyError:
            policy = None
        view = build_run_view(tx, run_id, policy, with_log=False)
        run = view.run
        told = SlackRunView(
            run,
            ended_children_count=view.ended_children_count,
            unfinished_hosts=view.unfinished_hosts,
            decisions=view.decisions,
            step_records=[*view.step_records.values()],
            area_title=run.area,
            requester=run.origin.user if run.origin.source == "slack" else "",
            page_url=f"{self.base_url}/runs/{run_id}" if self.base_url else "",
            log_reference=_format_log_reference(tx, run_id),
            break_glass=view.break_glass,
            is_quiet=bool(run.origin.schedule_id) and not schedules.has_different_outcome(tx, run),
            schedule=view.schedule,
            proposals=view.proposals,
            approvals_from=view.approvals_from,
            freeze_after_approval=view.freeze_after_approval,
            now=view.now,
        )
        return told if policy is None else self._add_policy_facts(tx, told, view, policy)

    def _add_policy_facts(
        self, tx: Transaction, slack_view: SlackRunView, view: RunView, policy: Policy
    ) -> SlackRunView:
        run, names = slack_view.run, policy.person_names
        area = policy.organisation.areas.get(run.area)
        asker = policy.find_person(run.requested_by)
        counts = run.state is State.PENDING and run.host in policy.inventory.hosts
        return replace(
            slack_view,
            person_names=names,
            area_title=policy.join_area_titles(run.areas),
            channel=(area.channel or "") if area else "",
            requester=slack_view.requester or (self._get_slack_user(asker) if asker else ""),
            owners=self._list_owners(policy, area),
            declined_erasure=self._get_declined_erasure(tx, policy, run),
            missing_approvals=view.missing_approvals if counts else None,
            approvers=[
                *(
                    Approver(person.name, self._get_slack_user(person))
                    for person in view.approvers
                ),
                *self._list_delegates(policy, view.delegates),
            ],
            used_grant=_get_used_grant(view, names),
        )

    def get_view_rights(self, person: str) -> ViewRights:
        """Return what a person may view; without a valid policy, their own alone."""
        try:
            return self._policies.get_policy().get_view_rights(person)
        except NoPolicyError:
            return create_own_runs_only(person)

    def get_person_names(self) -> Mapping[str, str]:
        """Return the names of all people, by their ids; none without a valid policy."""
        try:
            return self._policies.get_policy().person_names
        except NoPolicyError:
            return {}

    def get_person_ids_by_account(self) -> Mapping[str, str]:
        """Return whose each account of our Slack is: people's ids by U…."""
        people = self._policies.get_policy().organisation.people.values()
        return {
            self._get_slack_user(person): person.id
            for person in people
            if self._get_slack_user(person)
        }

    def _list_delegates(
        self, policy: Policy, delegations: Sequence[tuple[str, str]]
    ) -> Iterator[Approver]:
        for delegate, delegator in delegations:
            person, owner = policy.find_person(delegate), policy.find_person(delegator)
            if person and owner:
                yield Approver(person.name, self._get_slack_user(person), owner.name)

    def _get_declined_erasure(
        self, tx: Transaction, policy: Policy, run: Run
    ) -> DeclinedErasure | None:
        no = erasure.get_declined_erasure(tx, run.id) if run.is_ended else None
        if no is None:
            return None
        asker = policy.find_person(no.facts["requested_by"])
        user = self._get_slack_user(asker) if asker else ""
        return DeclinedErasure(no.seq, user, policy.get_person_name(no.person), no.facts["reason"])

    def _list_owners(self, policy: Policy, area: Area | None) -> list[Approver]:
        known = [policy.find_person(owner) for owner in (area.owners if area else ())]
        return [Approver(owner.name, self._get_slack_user(owner)) for owner in known if owner]

    def _get_slack_user(self, person: Person) -> str:
        return next(
            (account.user for account in person.slack if account.team == self.workspace), ""
        )


def _get_used_grant(view: RunView, names: Mapping[str, str]) -> UsedGrant | None:
    if view.grant is None:
        return None
    grant, left = view.grant
    return UsedGrant(grant.id, names.get(grant.granted_by, grant.granted_by), left, grant.per_hour)


def _format_log_reference(tx: Transaction, run_id: int) -> str:
    last = change_log.get_last_entry_of_run(tx, run_id)
    return f"log {last.seq} {last.hash[:12]}" if last else ""
