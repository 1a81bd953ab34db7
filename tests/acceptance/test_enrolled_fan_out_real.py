"""One signed document changes two enrolled hosts over real sshd and sudo, wave by wave."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from bot.db import runs
from bot.model.run import RequestTerms, Run, State
from runbooks.agents import BlockAgent, UnblockAgent
from tests.bot.harness import WEB
from tests.bot.signing.ssh_key import SshKey
from tests.playground.enrolled import EnrolledLogins
from tests.playground.enrolled_service import (
    EnrolledService,
    open_enrolled_host,
    open_enrolled_service,
)

pytestmark = pytest.mark.real

HOSTS = ("web1", "web2")
AGENT = "Evil Bot/2"


@pytest.fixture(scope="module")
def hosts(keys: Mapping[str, SshKey]) -> Iterator[Mapping[str, EnrolledLogins]]:
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root may give a server logins of its own")
    with ExitStack() as stack:
        yield {name: stack.enter_context(open_enrolled_host(keys, name=name)) for name in HOSTS}


@pytest.fixture
def gate(
    tmp_path: Path, hosts: Mapping[str, EnrolledLogins], keys: Mapping[str, SshKey]
) -> Iterator[EnrolledService]:
    first, second = hosts.values()
    with open_enrolled_service(tmp_path, first, keys, others=[second]) as service:
        yield service


def request(gate: EnrolledService, kind: type[BlockAgent | UnblockAgent] = BlockAgent) -> Run:
    wanted = [kind.model_validate({"host": host, "agent": AGENT}) for host in HOSTS]
    terms = RequestTerms("dora", WEB)
    return gate.wait(gate.service.request_on_hosts(wanted, terms, host_pattern="web*"))


def read_agents(gate: EnrolledService) -> Sequence[Sequence[str]]:
    return [gate.read_agents(host) for host in HOSTS]


def undo(gate: EnrolledService, run: Run) -> Run:
    asked = gate.wait(gate.service.request_undo(run.id, RequestTerms("dora", WEB)))
    return gate.sign_and_approve(asked)


def list_ends(gate: EnrolledService, run: Run) -> Mapping[str, State]:
    with gate.database.reading() as tx:
        return {child.host: child.state for child in runs.list_children(tx, run.id)}


def read_sent(host: EnrolledLogins, run: Run) -> str:
    """Return what the host was sent for a plan."""
    assert run.plan
    (place,) = host.record.glob(f"{run.plan.nonce}-*/1-do/input")
    return place.read_text()


def test_two_hosts_are_changed_and_changed_back_by_one_document_with_two_sections(
    gate: EnrolledService, hosts: Mapping[str, EnrolledLogins]
):
    run = request(gate)
    assert run.state is State.PENDING
    assert run.plan
    assert [section.host for section in run.plan.sections] == [*HOSTS]
    done = gate.sign_and_approve(run)
    assert (done.state, read_agents(gate)) == (State.SUCCEEDED, [(AGENT,), (AGENT,)]), done.summary
    for name, section in zip(HOSTS, run.plan.sections, strict=True):
        assert f"run {run.id}, do 1, signed by dora olga: " in (
            (hosts[name].record / "log").read_text()
        )
        lines = read_sent(hosts[name], run).splitlines()
        assert [line[2:] for line in lines if line[0] == "d"] == run.plan.document.splitlines()
        assert [line[2:] for line in lines if line[0] == "s"] == section.text.splitlines()
    undone = undo(gate, done)
    assert (undone.state, read_agents(gate)) == (State.SUCCEEDED, [(), ()]), undone.summary


@pytest.mark.parametrize(
    ("refusing", "ends", "changed"),
    [
        ("web2", (State.SUCCEEDED, State.FAILED), [(AGENT,), ()]),
        # The first host is the canary: after it no other is sent anything.
        ("web1", (State.FAILED, State.WITHDRAWN), [(), ()]),
    ],
)
def test_host_that_does_not_name_a_signer_refuses_its_part(
    gate: EnrolledService,
    hosts: Mapping[str, EnrolledLogins],
    refusing: str,
    ends: Sequence[State],
    changed: Sequence[Sequence[str]],
):
    signers = hosts[refusing].directory / "etc/keyturn/signers"
    before = signers.read_text()
    signers.write_text("".join(x for x in before.splitlines(True) if not x.startswith("olga ")))
    run = request(gate)
    ended = gate.sign_and_approve(run)
    signers.write_text(before)
    assert (ended.state, read_agents(gate)) == (State.FAILED, changed), ended.summary
    assert [*list_ends(gate, run).values()] == [*ends]
    assert f"{refusing}: Step 1 of 1 failed: output: not run: signature 2 is by" in ended.summary
    if any(changed):
        undone = undo(gate, ended)
        assert (undone.state, [*list_ends(gate, undone)]) == (State.SUCCEEDED, ["web1"])
        assert read_agents(gate) == [(), ()]
