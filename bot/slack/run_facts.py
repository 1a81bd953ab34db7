"""A story: all that is told of one run, gathered from the database and the policy."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bot.audit import change_log
from bot.db import schedules
from bot.db.break_glass import BreakGlass
from bot.db.database import Transaction
from bot.model.run import Run, State, StepRecord, Vote
from bot.model.view_rights import Sight, view_own_only
from bot.policy import NoPolicy, Person, Policy
from bot.policy.people import Area
from bot.workflow import erasure
from bot.workflow.context import Policies
from bot.workflow.run_view import RunView, build_run_view
from bot.workflow.schedule_facts import ScheduleFacts


@dataclass(frozen=True)
class Approver:
    """Somebody who could turn the second key. user: U…, "" without an account in our Slack.

    instead_of: the name of the owner in whose stead only they could.
    """

    name: str
    user: str = ""
    instead_of: str = ""


@dataclass(frozen=True)
class Granted:
    """The grant that stood in for an approval. giver: a name. left: how many after this one."""

    number: int
    giver: str
    left: int
    an_hour: int


@dataclass(frozen=True)
class Declined:
    """An owner's no to erasing what was answered. user: who asked, U…, or "". by: a name.

    seq: the entry that says so.
    """

    seq: int
    user: str
    by: str
    why: str


@dataclass(frozen=True)
class Story:
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
    votes: Sequence[Vote] = ()
    steps: Sequence[StepRecord] = ()
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    area: str = ""
    channel: str = ""
    whose: str = ""
    missing: int | None = None
    approvers: Sequence[Approver] = ()
    granted: Granted | None = None
    asker: str = ""
    page: str = ""
    sealed: str = ""
    quiet: bool = False
    hosts_done: int = 0
    under_way: Sequence[str] = ()
    glass: BreakGlass | None = None
    owners: Sequence[Approver] = ()
    declined: Declined | None = None
    frozen: str = ""
    tries: int = 0
    schedule: ScheduleFacts | None = None
    proposals: Sequence[int] = ()
    now: int = 0

    def name(self, person: str) -> str:
        return self.names.get(person, person)

    @property
    def yes_votes(self) -> Sequence[Vote]:
        return [vote for vote in self.votes if vote.yes]

    @property
    def refused_at_once(self) -> bool:
        """Whether it ended in the transaction that recorded it: its asker had that as answer."""
        return self.run.ended == self.run.asked


class Stories:
    """Tells the story of any run. team: our Slack workspace. base_url: of the web pages, or ""."""

    def __init__(self, policies: Policies, *, team: str, base_url: str) -> None:
        self._policies, self.team = policies, team
        self.base_url = base_url.rstrip("/")

    def of(self, tx: Transaction, number: int) -> Story:
        """Raises NoSuchRun. Without a valid policy the story has what the run itself knows."""
        try:
            policy = self._policies.current()
        except NoPolicy:
            policy = None
        view = build_run_view(tx, number, policy, with_log=False)
        run = view.run
        told = Story(
            run,
            hosts_done=view.children_done,
            under_way=view.hosts_under_way,
            votes=view.votes,
            steps=[*view.records.values()],
            area=run.area,
            asker=run.origin.user if run.origin.door == "slack" else "",
            page=f"{self.base_url}/runs/{number}" if self.base_url else "",
            sealed=_sealed(tx, number),
            glass=view.glass,
            quiet=bool(run.origin.schedule) and not schedules.has_different_outcome(tx, run),
            schedule=view.schedule,
            proposals=view.proposals,
            whose=view.whose,
            frozen=view.frozen,
            now=view.now,
        )
        return told if policy is None else self._with_policy(tx, told, view, policy)

    def _with_policy(self, tx: Transaction, told: Story, view: RunView, policy: Policy) -> Story:
        run, names = told.run, policy.names
        area = policy.household.areas.get(run.area)
        asker = policy.person(run.asked_by)
        counts = run.state is State.WAITING and run.host in policy.inventory.hosts
        return replace(
            told,
            names=names,
            area=policy.titles(run.areas),
            channel=(area.channel or "") if area else "",
            asker=told.asker or (self._user(asker) if asker else ""),
            owners=self._owners(policy, area),
            declined=self._declined(tx, policy, run),
            missing=view.missing if counts else None,
            approvers=[
                *(Approver(person.name, self._user(person)) for person in view.approvers),
                *self._delegates(policy, view.delegates),
            ],
            granted=_granted(view, names),
        )

    def sight(self, person: str) -> Sight:
        """Return what a person may view; without a valid policy, their own alone."""
        try:
            return self._policies.current().sight(person)
        except NoPolicy:
            return view_own_only(person)

    def people(self) -> Mapping[str, str]:
        """Return the names of all people, by their ids; none without a valid policy."""
        try:
            return self._policies.current().names
        except NoPolicy:
            return {}

    def accounts(self) -> Mapping[str, str]:
        """Return whose each account of our Slack is: people's ids by U…."""
        people = self._policies.current().household.people.values()
        return {self._user(person): person.id for person in people if self._user(person)}

    def _delegates(self, policy: Policy, found: Sequence[tuple[str, str]]) -> Iterator[Approver]:
        for delegate, delegator in found:
            person, owner = policy.person(delegate), policy.person(delegator)
            if person and owner:
                yield Approver(person.name, self._user(person), owner.name)

    def _declined(self, tx: Transaction, policy: Policy, run: Run) -> Declined | None:
        no = erasure.get_declined_erasure(tx, run.id) if run.over else None
        if no is None:
            return None
        asker = policy.person(no.facts["asked_by"])
        user = self._user(asker) if asker else ""
        return Declined(no.seq, user, policy.name_person(no.person), no.facts["why"])

    def _owners(self, policy: Policy, area: Area | None) -> list[Approver]:
        known = [policy.person(owner) for owner in (area.owners if area else ())]
        return [Approver(owner.name, self._user(owner)) for owner in known if owner]

    def _user(self, person: Person) -> str:
        return next((account.user for account in person.slack if account.team == self.team), "")


def _granted(view: RunView, names: Mapping[str, str]) -> Granted | None:
    if view.grant is None:
        return None
    grant, left = view.grant
    return Granted(grant.id, names.get(grant.giver, grant.giver), left, grant.an_hour)


def _sealed(tx: Transaction, number: int) -> str:
    last = change_log.get_last_entry_of_run(tx, number)
    return f"log {last.seq} {last.hash[:12]}" if last else ""
