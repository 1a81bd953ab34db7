"""The view of a run in Slack, built from the database and the policy."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bot.audit import change_log
from bot.db import view_conditions
from bot.db.break_glass import BreakGlass
from bot.db.database import Transaction
from bot.model.agents import get_agent_name
from bot.model.references import hide_references, list_referenced_runs, show_references
from bot.model.run import Decision, Run, StepRecord, name_requester
from bot.model.run_states import StatusDisplay
from bot.model.view_rights import ViewRights, create_own_runs_only
from bot.policy import NoPolicyError, Person, Policy, PolicySource
from bot.policy.people import Area
from bot.queries.pending import Inbox, read_inbox
from bot.queries.questions import Discussion, get_answerer
from bot.queries.run_view import RunView, Viewer, build_run_view
from bot.slack.features import NO_FEATURES, ChatFeatures
from bot.slack.run_notices import NoticeContext, RunNotice


@dataclass(frozen=True)
class Approver:
    """A person who can approve a run."""

    name: str
    slack_user: str = ""
    """U…; "" without an account in our workspace."""
    on_behalf_of: str = ""
    """Name of the owner if the person can approve by a delegation only."""
    is_assigned: bool = False
    """Whether the person is asked first."""
    is_on_duty: bool = False
    """Whether the person is on duty for the area, and so called first."""


@dataclass(frozen=True)
class UsedGrant:
    """The standing grant that a run used instead of an approval."""

    grant_id: int
    granted_by: str
    """A name."""
    uses_left: int
    """In this hour, after this run."""
    per_hour: int


@dataclass(frozen=True)
class SlackRunView:
    """One run as it is now: what every source shows of it, and what only chat needs."""

    view: RunView
    person_names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names by person id."""
    area_title: str = ""
    channel: str = ""
    """C… of its area, or ""."""
    approvers: Sequence[Approver] = ()
    slack_users: Mapping[str, str] = field(default_factory=dict[str, str])
    """Slack users of the people who ask and answer, by person id."""
    used_grant: UsedGrant | None = None
    requester: str = ""
    """The requester's Slack user, or ""."""
    page_url: str = ""
    """Address of its web page, or ""."""
    log_reference: str = ""
    """Number and start of the hash of its last entry in the change log."""
    is_quiet: bool = False
    """Whether it is not posted."""
    owners: Sequence[Approver] = ()
    """Owners of its area."""
    notices: Sequence[RunNotice] = ()
    """What features have to say beside its card."""
    attempts: int = 0
    """How often delivery has failed since it last succeeded."""

    @property
    def run(self) -> Run:
        return self.view.run

    @property
    def display(self) -> StatusDisplay:
        return self.view.display

    @property
    def discussion(self) -> Discussion:
        return self.view.discussion

    @property
    def break_glass(self) -> BreakGlass | None:
        return self.view.break_glass

    @property
    def step_records(self) -> Sequence[StepRecord]:
        return [*self.view.step_records.values()]

    def get_person_name(self, person: str) -> str:
        return self.person_names.get(person, get_agent_name(person))

    @property
    def requester_name(self) -> str:
        """The name of the requester, and for whom an agent asked."""
        return name_requester(self.run, self.person_names)

    @property
    def approvals(self) -> Sequence[Decision]:
        return [decision for decision in self.view.decisions if decision.approves]

    @property
    def is_refused_at_once(self) -> bool:
        """Whether it ended in the transaction that recorded it, so the requester was answered."""
        return self.run.ended_at == self.run.requested_at


class SlackRunViewBuilder:
    """Builds views of runs.

    team: our Slack workspace. base_url: of the web pages, or "".
    """

    def __init__(
        self,
        policies: PolicySource,
        *,
        team: str,
        base_url: str,
        features: ChatFeatures = NO_FEATURES,
    ) -> None:
        self._policies, self.workspace = policies, team
        self.base_url, self._features = base_url.rstrip("/"), features

    def build_slack_run_view(self, tx: Transaction, run_id: int) -> SlackRunView:
        """Build the view of a run. Raises NoSuchRun.

        Without a valid policy it contains only what the run itself stores.
        """
        try:
            policy = self._policies.get_policy()
        except NoPolicyError:
            policy = None
        view = build_run_view(tx, run_id, policy, with_log=False)
        run = self._show_references(tx, policy, view.run)
        slack_view = SlackRunView(
            replace(view, run=run),
            area_title=run.area,
            requester=run.origin.user if run.origin.source == "slack" else "",
            page_url=f"{self.base_url}/runs/{run_id}" if self.base_url else "",
            log_reference=_format_log_reference(tx, run_id),
            is_quiet=any(is_quiet(tx, run) for is_quiet in self._features.is_quiet),
        )
        return slack_view if policy is None else self._add_policy_facts(tx, slack_view, policy)

    def _add_policy_facts(
        self, tx: Transaction, slack_view: SlackRunView, policy: Policy
    ) -> SlackRunView:
        view, run, names = slack_view.view, slack_view.run, policy.person_names
        area = policy.organisation.areas.get(run.area)
        requester = policy.find_person(run.requested_by)
        on_duty = {person for name in run.areas for person in policy.list_on_duty(name)}
        return replace(
            slack_view,
            person_names=names,
            area_title=policy.join_area_titles(run.areas),
            channel=(area.channel or "") if area else "",
            requester=slack_view.requester
            or (self._get_slack_user(requester) if requester else ""),
            owners=self._list_owners(policy, area),
            notices=[*self._list_notices(tx, policy, run)],
            approvers=sorted(
                [
                    *(
                        Approver(
                            person.name,
                            self._get_slack_user(person),
                            is_assigned=person.id == view.discussion.assignee,
                            is_on_duty=person.id in on_duty,
                        )
                        for person in view.approvers
                    ),
                    *self._list_delegates(view),
                ],
                key=lambda approver: (not approver.is_assigned, not approver.is_on_duty),
            ),
            slack_users={
                person.id: self._get_slack_user(person)
                for one in [get_answerer(run), *(one.person for one in view.discussion.remarks)]
                if (person := policy.find_person(one))
            },
            used_grant=_get_used_grant(view, names),
        )

    def _show_references(self, tx: Transaction, policy: Policy | None, run: Run) -> Run:
        """Return a run; in a channel, with what everyone may view of other runs."""
        waiting = run.waiting
        if tx.view_rights is not None:
            return run.show_references(hide_references)
        texts = [run.summary, *(run.plan.notes if run.plan else ())]
        numbers = {number for text in texts for number in list_referenced_runs(text)}
        if waiting is not None and waiting.run is not None:
            numbers.add(waiting.run)
            waiting = replace(waiting, is_run_viewable=True)
        if policy is None:
            return replace(
                run.show_references(hide_references),
                waiting=waiting and replace(waiting, run=None, is_run_viewable=False),
            )
        for person in policy.organisation.people if numbers else ():
            with view_conditions.viewing_as(tx, policy.get_view_rights(person)):
                numbers &= view_conditions.list_viewable(tx, numbers)
            if not numbers:
                break
        if waiting is not None and waiting.run not in numbers:
            waiting = replace(waiting, run=None, is_run_viewable=False)
        shown = run.show_references(lambda text: show_references(text, numbers))
        return replace(shown, waiting=waiting)

    def get_policy(self) -> Policy:
        """Return the policy. Raises NoPolicyError."""
        return self._policies.get_policy()

    def get_view_rights(self, person: str) -> ViewRights:
        """Return what a person may view; without a valid policy, only their own runs."""
        try:
            return self._policies.get_policy().get_view_rights(person)
        except NoPolicyError:
            return create_own_runs_only(person)

    def read_inbox(self, tx: Transaction, person: str) -> Inbox:
        """Return what waits for a person; nothing without a valid policy."""
        try:
            return read_inbox(tx, self._policies.get_policy(), person)
        except NoPolicyError:
            return Inbox((), frozenset(), {}, (), ())

    def get_person_names(self) -> Mapping[str, str]:
        """Return the names of all people, by their ids; none without a valid policy."""
        try:
            return self._policies.get_policy().person_names
        except NoPolicyError:
            return {}

    def get_person_ids_by_account(self) -> Mapping[str, str]:
        """Return the person ids by Slack user (U…) of our workspace."""
        people = self._policies.get_policy().organisation.people.values()
        return {
            self._get_slack_user(person): person.id
            for person in people
            if self._get_slack_user(person)
        }

    def list_assignees(self, tx: Transaction, run_id: int, person: str) -> Sequence[Person]:
        """Return to whom this person may reassign a run."""
        policy = self._policies.get_policy()
        view = build_run_view(tx, run_id, policy, Viewer(person), with_log=False)
        return view.allowed_actions.assignees

    def _list_delegates(self, view: RunView) -> Iterator[Approver]:
        for person, owner in view.delegates:
            is_assigned = person.id == view.discussion.assignee
            yield Approver(person.name, self._get_slack_user(person), owner.name, is_assigned)

    def _list_notices(self, tx: Transaction, policy: Policy, run: Run) -> Iterator[RunNotice]:
        def find_user(person: str) -> str:
            known = policy.find_person(person)
            return self._get_slack_user(known) if known else ""

        asked = NoticeContext(tx, policy, run, self.base_url, find_user)
        yield from filter(None, (build(asked) for build in self._features.notices))

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
    point = change_log.get_checkpoint_after(tx, last.seq) if last else None
    return f"log {point.size} {point.root[:12]}" if point else ""
