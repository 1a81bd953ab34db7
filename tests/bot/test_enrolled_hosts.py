"""Each way to a change of an enrolled host works with signatures, or is refused with a reason.

The host is its real program, run by sh as root; what it changes are switches.
"""

import os
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from bot.db.grants import NewGrant
from bot.features.drift.actions import DriftActions
from bot.features.rebuild.actions import RebuildActions
from bot.model.errors import NotAllowed
from bot.model.run import RequestTerms, Run, State
from bot.model.sequence import UndoSelection
from bot.policy.explain import PreviewQuestion
from bot.queries.preview import preview_request
from connectors.command import NO_HOOKS, Answer, Command, RunHooks, Shell
from connectors.errors import CommandError
from tests.agents import TRIAGE, add_agent, get_rules_for_agents, request_as_agent
from tests.bot.features.drift.test_drift import change_by_hand
from tests.bot.harness import WEB, Harness, open_harness
from tests.guarantee.signed_host import SignedHost
from tests.policies import give_signing_key
from tests.toy import KeepSwitch, SetSwitch, ToyFleet

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may run the program of a host"),
]

HOUR = 3_600_000_000
SIGNS = "The host itself checks signatures: the requester and an owner sign the plan."
SET_SWITCH = '#!/bin/sh\necho "$@" >>{changed}\n'


@dataclass
class EnrolledFleet(ToyFleet):
    """Toy hosts, of which lb1 is enrolled: its program sets the switches."""

    signed: SignedHost = field(kw_only=True)

    def run_command(
        self,
        host: str,
        command: Command,
        /,
        *,
        fingerprint: str = "",
        hooks: RunHooks = NO_HOOKS,
    ) -> Answer:
        if host != "lb1":
            return super().run_command(host, command, fingerprint=fingerprint, hooks=hooks)
        assert isinstance(command, Shell)
        done = self.signed.send(command.stdin.encode())
        if done.status:
            raise CommandError(done.error)
        self.sent.append((host, str(command)))
        lines = [line.split() for line in self.signed.changed.read_text().splitlines()]
        self.hosts[host] |= dict(lines[-1:])
        return Answer(0, "")


@pytest.fixture
def signed(tmp_path: Path) -> SignedHost:
    host = SignedHost(tmp_path)
    program = host.programs / "set"
    program.write_text(SET_SWITCH.format(changed=host.changed))
    program.chmod(0o755)
    return host


@pytest.fixture
def enrolled(tmp_path: Path, signed: SignedHost) -> Generator[Harness]:
    rules = get_rules_for_agents()
    with open_harness(tmp_path, rules=rules, fleet=EnrolledFleet(signed=signed)) as harness:
        file = harness.policies.path / "inventory.yaml"
        yaml = YAML()
        inventory = yaml.load(file)
        key = (signed.root / "etc/ssh/ssh_host_ed25519_key.pub").read_text()
        inventory["hosts"]["lb1"] |= {"user": "kt", "signed": True, "host_key": key}
        yaml.dump(inventory, file)
        for name in ("dora", "olga"):
            give_signing_key(harness.policies.path, name, signed.keys[name].line)
        give_signing_key(harness.policies.path, "stan", signed.passkey.public.line)
        yield harness


def sign(signed: SignedHost, run: Run, person: str) -> str:
    assert run.plan
    if person == "stan":
        return signed.sign_with_passkey(run.plan.document)
    return signed.sign(run.plan.document, person)[0]


def approve(harness: Harness, signed: SignedHost, run: Run, person: str = "olga") -> Run:
    """Let the requester and an approver sign a pending run."""
    run = harness.get_run(run.id)
    assert run.state is State.PENDING, run.summary
    assert SIGNS in run.policy_notes
    harness.service.sign_request(
        run.id, person="dora", digest=run.digest, signature=sign(signed, run, "dora")
    )
    harness.service.approve_run(
        run.id, person=person, digest=run.digest, signature=sign(signed, run, person)
    )
    harness.run_queued_work()
    return harness.get_run(run.id)


def request(harness: Harness, value: str, name: str = "lamp") -> Run:
    return harness.request(KeepSwitch(host="lb1", name=name, value=value))


def read_switch(harness: Harness, name: str = "lamp") -> str:
    return harness.fleet.hosts["lb1"][name]


def test_change_and_its_undo_are_signed(enrolled: Harness, signed: SignedHost):
    done = approve(enrolled, signed, request(enrolled, "on"))
    assert (done.state, read_switch(enrolled)) == (State.SUCCEEDED, "on"), done.summary
    undo = enrolled.service.request_undo(done.id, RequestTerms("dora", WEB))
    enrolled.run_queued_work()
    undone = approve(enrolled, signed, undo)
    assert (undone.state, read_switch(enrolled)) == (State.SUCCEEDED, "off"), undone.summary


def test_several_undone_runs_are_one_signed_sequence(enrolled: Harness, signed: SignedHost):
    for name in ("lamp", "fan"):
        assert approve(enrolled, signed, request(enrolled, "on", name)).state is State.SUCCEEDED
    undo = enrolled.service.request_undo_of_selection(
        UndoSelection(person="dora", since=1), RequestTerms("dora", WEB)
    )
    enrolled.run_queued_work()
    undone = approve(enrolled, signed, undo)
    assert undone.state is State.SUCCEEDED, undone.summary
    assert enrolled.fleet.hosts["lb1"] == {"lamp": "off", "fan": "off"}


def test_drifted_value_is_restored_by_a_signed_plan(enrolled: Harness, signed: SignedHost):
    approve(enrolled, signed, request(enrolled, "on"))
    drifted = change_by_hand(enrolled)
    again = enrolled.service.bind(DriftActions).restore_value(
        drifted.id, RequestTerms("dora", WEB)
    )
    enrolled.run_queued_work()
    done = approve(enrolled, signed, again)
    assert (done.state, read_switch(enrolled)) == (State.SUCCEEDED, "on"), done.summary


def test_values_of_another_host_are_set_by_a_signed_plan(enrolled: Harness, signed: SignedHost):
    for name in ("lamp", "fan"):
        enrolled.fleet.hosts["lb2"][name] = "off"
        made = enrolled.request(KeepSwitch(host="lb2", name=name, value="on"))
        assert enrolled.approve(made).state is State.SUCCEEDED
    run = enrolled.service.bind(RebuildActions).request_rebuild(
        "lb2", RequestTerms("dora", WEB), new_host="lb1"
    )
    enrolled.run_queued_work()
    done = approve(enrolled, signed, run)
    assert done.state is State.SUCCEEDED, done.summary
    assert enrolled.fleet.hosts["lb1"] == {"lamp": "on", "fan": "on"}


def test_both_sign_the_plan_with_the_values_that_an_approver_proposes(
    enrolled: Harness, signed: SignedHost
):
    first = request(enrolled, "on")
    offered = enrolled.service.propose_values(
        first.id, person="adam", changed_values={"value": "dim"}, reason="too bright"
    )
    enrolled.run_queued_work()
    offered = enrolled.get_run(offered.id)
    enrolled.service.accept_proposal(offered.id, person="dora", digest=offered.digest)
    done = approve(enrolled, signed, offered)
    assert (done.state, read_switch(enrolled)) == (State.SUCCEEDED, "dim"), done.summary


def test_delegate_signs_with_a_key_of_their_own(enrolled: Harness, signed: SignedHost):
    with enrolled.database.reading() as tx:
        ends_at = tx.now + HOUR
    enrolled.service.delegations.create_delegation(
        delegator="olga", delegate="stan", ends_at=ends_at, area="edge", source="web"
    )
    done = approve(enrolled, signed, request(enrolled, "on"), "stan")
    assert (done.state, read_switch(enrolled)) == (State.SUCCEEDED, "on"), done.summary
    assert "signed by dora stan: set lamp on" in (signed.record / "log").read_text()


def test_delegate_whom_the_host_does_not_name_is_refused_there(
    enrolled: Harness, signed: SignedHost
):
    signed.floor.write_text(signed.floor.read_text().replace("owners olga stan", "owners olga"))
    with enrolled.database.reading() as tx:
        ends_at = tx.now + HOUR
    enrolled.service.delegations.create_delegation(
        delegator="olga", delegate="stan", ends_at=ends_at, area="edge", source="web"
    )
    ended = approve(enrolled, signed, request(enrolled, "on"), "stan")
    assert (ended.state, read_switch(enrolled)) == (State.FAILED, "off")
    assert "it needs the signatures of 1 of the group owners" in ended.summary


def test_standing_grant_is_refused_and_does_not_count(enrolled: Harness):
    with enrolled.database.reading() as tx:
        ends_at = tx.now + HOUR
    for hosts in ("lb1", "lb*"):
        wanted = NewGrant("dora", "toy keep", hosts, 5, ends_at)
        with pytest.raises(NotAllowed, match="for lb1 cannot cover changes that require signatu"):
            enrolled.service.grants.create_grant(wanted, granted_by="olga", source="web")


def test_break_glass_is_refused(enrolled: Harness):
    run = enrolled.request(KeepSwitch(host="lb1", name="lamp", value="on"), person="olga")
    with pytest.raises(NotAllowed, match="signed a change, so break-glass does not help there"):
        enrolled.service.break_glass.request_break_glass(
            run.id, person="olga", reason="customers are locked out"
        )


def test_agent_is_refused(enrolled: Harness):
    add_agent(enrolled)
    why = "lb1 checks who signed each change, and an agent signs nothing"
    run = request_as_agent(enrolled, SetSwitch(host="lb1", name="lamp", value="on"))
    assert run.state is State.REFUSED
    assert why in run.summary


@pytest.mark.parametrize(
    ("person", "source", "sentence"),
    [
        ("dora", "web", SIGNS),
        ("olga", "web", SIGNS),
        (TRIAGE, "mcp", "lb1 checks who signed each change, and an agent signs nothing"),
        ("dora", "schedule", "lb1 checks who signed each change, and a schedule signs nothing"),
    ],
)
def test_forecast_says_who_signs(enrolled: Harness, person: str, source: str, sentence: str):
    add_agent(enrolled)
    question = PreviewQuestion(KeepSwitch, ("lb1",))
    policy = enrolled.policies.get_policy()
    with enrolled.database.reading() as tx:
        preview = preview_request(tx, policy, question, person=person, source=source)
    (area,) = preview.areas
    assert sentence in area.evaluation.policy_notes
