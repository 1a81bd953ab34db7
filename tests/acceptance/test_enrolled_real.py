"""An enrolled host over a real sshd and sudo: who has Keyturn's logins changes nothing there."""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bot.db import runs
from bot.execution.executor import find_signed_step
from bot.execution.intent import build_step_marker
from bot.hosts.live_check import describe_floor, describe_signers
from bot.model.approvals import ApprovalRequirements
from bot.model.errors import InvalidRequestError
from bot.model.run import RequestTerms, Run, State, StepState
from bot.model.schedule import ScheduleTiming, parse_cron
from bot.policy import Policy, PolicyRequest, Ruling
from connectors.command import Shell
from connectors.errors import CommandError
from connectors.run_signed import PROGRAM_PATH
from connectors.step_marker import MARKER_SETTING
from runbooks.signers_update import UpdateSigners
from tests.bot.features.schedules.due import fire_schedule, move_decided_moments_back
from tests.bot.harness import WEB
from tests.bot.signing.ssh_key import SshKey
from tests.playground.enrolled import EnrolledLogins
from tests.playground.enrolled_service import (
    HOST,
    EnrolledService,
    TouchFile,
    Wait,
    open_enrolled_service,
)
from tests.playground.two_logins import CHANGER, READER
from tests.policies import give_signing_key

pytestmark = pytest.mark.real


@pytest.fixture
def gate(
    tmp_path: Path, enrolled: EnrolledLogins, keys: Mapping[str, SshKey]
) -> Iterator[EnrolledService]:
    with open_enrolled_service(tmp_path, enrolled, keys) as service:
        yield service


def test_enrolled_host_is_changed_and_changed_back_by_two_signatures(
    gate: EnrolledService, enrolled: EnrolledLogins
):
    run = gate.request()
    assert run.state is State.PENDING
    assert "The host itself checks signatures" in " ".join(run.policy_notes)
    with pytest.raises(InvalidRequestError, match="has to sign it before"):
        gate.service.approve_run(run.id, person="olga", digest=run.digest)
    done = gate.sign_and_approve(run)
    assert (done.state, gate.refused_agents) == (State.SUCCEEDED, ("Evil Bot/2",)), done.summary
    log = (enrolled.record / "log").read_text()
    assert f"run {run.id}, do 1, signed by dora olga: /usr/local/lib/keyturn/nginx-agents-" in log
    undo = gate.wait(gate.service.request_undo(run.id, RequestTerms("dora", WEB)))
    assert gate.sign_and_approve(undo).state is State.SUCCEEDED
    assert gate.refused_agents == ()


def test_schedule_runs_without_signatures_what_the_floor_names(
    tmp_path: Path, enrolled: EnrolledLogins, keys: Mapping[str, SshKey]
):
    file = enrolled.directory / "made-by-schedule"
    for place in (enrolled.directory.parent, enrolled.directory):
        place.chmod(0o711)  # so that the login which reads can see the file
    floor = enrolled.directory / "etc/keyturn/floor"
    before, line = floor.read_text(), f"touch {file}"
    wanted = TouchFile.model_validate({"host": HOST, "file": str(file)})
    timing = ScheduleTiming("hourly", parse_cron("0 * * * *", "UTC"))
    terms = RequestTerms("dora", WEB, timing=timing)
    with open_enrolled_service(tmp_path, enrolled, keys, unsigned=[line]) as gate:
        run = gate.wait(gate.service.request_on_hosts([wanted], terms, host_pattern=""))
        assert gate.harness.approve(run).state is State.SUCCEEDED
        refused = fire_schedule(gate.harness)
        assert (refused.state, file.exists()) == (State.FAILED, False)
        assert "it needs the signatures of 2 people, and has those of no one" in refused.summary
        assert f"Root adds the line `unsigned {line}`" in describe_floor(
            gate.fleet, gate.fleet.inventory[HOST]
        )
        floor.write_text(f"{before}unsigned {line}\n")
        move_decided_moments_back(gate.harness)
        done = fire_schedule(gate.harness)
        assert describe_floor(gate.fleet, gate.fleet.inventory[HOST]) == ""
    floor.write_text(before)
    assert (done.state, file.exists()) == (State.SUCCEEDED, True), done.summary
    assert (
        f"run {done.id}, do 1, signed by no one: touch " in (enrolled.record / "log").read_text()
    )


def test_host_stops_a_step_of_root_at_its_deadline(gate: EnrolledService):
    run = gate.harness.request(Wait.model_validate({"host": HOST, "file": "/nowhere/x"}))
    ended = gate.sign_and_approve(run)
    assert "the host stopped the command at its deadline of 1 s" in ended.summary
    found = subprocess.run(["pgrep", "-f", "sleep 60.25"], capture_output=True, check=False)
    assert found.returncode == 1, found.stdout
    # Nothing says how far it came; people decide, as on other hosts.
    assert ended.state is State.UNKNOWN


def test_host_refuses_what_a_keyturn_without_its_own_check_sends(
    gate: EnrolledService, monkeypatch: pytest.MonkeyPatch
):
    """Whoever has taken Keyturn over can write any approval, and the host runs none of it."""
    real = Policy.get_request_ruling

    def ask_no_one(policy: Policy, request: PolicyRequest) -> Ruling:
        return replace(real(policy, request), requirements=ApprovalRequirements())

    monkeypatch.setattr(Policy, "get_request_ruling", ask_no_one)
    run = gate.request()
    assert run.state is State.FAILED
    assert "it needs the signatures of 2 people, and has those of no one" in run.summary
    assert gate.refused_agents == ()


def _undo(gate: EnrolledService, run: Run) -> None:
    undo = gate.wait(gate.service.request_undo(run.id, RequestTerms("dora", WEB)))
    assert gate.sign_and_approve(undo).state is State.SUCCEEDED
    assert gate.refused_agents == ()


def test_outcome_of_a_step_is_what_the_record_of_root_says(gate: EnrolledService):
    run = gate.request()
    gate.sign_and_lose_power(run, "after")
    done = gate.recover(run)
    assert (done.state, gate.refused_agents) == (State.SUCCEEDED, ("Evil Bot/2",)), done.summary
    with gate.database.reading() as tx:
        (step,) = runs.list_steps(tx, run.id)
    assert (step.state, step.exit_status) == (StepState.SUCCEEDED, 0)
    _undo(gate, run)


def test_step_that_never_reached_its_host_is_given_up_there(gate: EnrolledService):
    run = gate.request()
    gate.sign_and_lose_power(run, "before")
    ended = gate.recover(run)
    assert (ended.state, gate.refused_agents) == (State.FAILED, ())
    assert "returned that the step never started, and never will" in ended.summary
    # Also not when the network delivers it now.
    command = find_signed_step(gate.harness.context, run, 1)
    assert command
    assert run.plan
    shell = run.plan.steps[0].command
    assert isinstance(shell, Shell)
    with pytest.raises(CommandError, match="given up before it began"):
        gate.fleet.run_command("web1", command.sign_command(shell))
    assert gate.refused_agents == ()


def test_outcome_is_unknown_where_the_host_lost_power_during_the_step(
    gate: EnrolledService, enrolled: EnrolledLogins
):
    run = gate.request()
    gate.sign_and_lose_power(run, "after")
    ended = max(enrolled.record.glob("*/1-do/end"), key=lambda file: file.stat().st_mtime_ns)
    ended.unlink()
    Path(enrolled.host().settings["nginx.agents"]).write_text("")
    unknown = gate.recover(run)
    assert unknown.state is State.UNKNOWN
    assert "began, and has no record of how it ended" in unknown.summary


def test_signers_of_a_host_change_by_a_plan_that_its_signers_signed(
    gate: EnrolledService, enrolled: EnrolledLogins
):
    before = _read_state(enrolled)
    update = UpdateSigners.model_validate({"host": "web1"})
    give_signing_key(gate.policies.path, "adam", gate.keys["eve"].line)
    gate.fleet.inventory = gate.policies.get_policy().inventory
    problem = describe_signers(gate.fleet, gate.fleet.inventory["web1"])
    assert "Only the policy says: adam signs with ssh-ed25519 SHA256:" in problem
    done = gate.sign_and_approve(gate.harness.request(update))
    assert done.state is State.SUCCEEDED, done.summary
    assert done.plan
    assert done.plan.steps[0].after.startswith("adam signs with ssh-ed25519 SHA256:")
    assert (enrolled.directory / "etc/keyturn/signers").read_text().startswith("adam namespaces=")
    assert describe_signers(gate.fleet, gate.fleet.inventory["web1"]) == ""
    undo = gate.wait(gate.service.request_undo(done.id, RequestTerms("dora", WEB)))
    assert gate.sign_and_approve(undo).state is State.SUCCEEDED
    assert _read_state(enrolled) == before


def test_marker_that_the_login_forges_decides_nothing(
    gate: EnrolledService, enrolled: EnrolledLogins
):
    """The login may write what it likes where markers are on other hosts."""
    run = gate.request()
    gate.sign_and_lose_power(run, "after")
    markers = Path(enrolled.host().settings[MARKER_SETTING])
    with gate.database.reading() as tx:
        marker = build_step_marker(tx, run, 1)
    forged = markers / f"{marker.run}-1"
    forged.mkdir()
    (forged / "closed").write_text("asked\n")
    os.chown(forged, 64001, 65534)
    assert gate.recover(run).state is State.SUCCEEDED
    _undo(gate, run)


def test_key_of_the_changing_login_changes_nothing_without_signatures(gate: EnrolledService):
    run = gate.request()
    assert run.plan
    (step,) = run.plan.steps
    with pytest.raises(CommandError):
        gate.fleet.run_command("web1", step.command)
    assert gate.refused_agents == ()


def _log_in(
    enrolled: EnrolledLogins, login: str, command: str
) -> subprocess.CompletedProcess[str]:
    words = ["ssh", "-F", "none", "-i", str(enrolled.directory / login), "-p", str(enrolled.port)]
    unchecked = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    shared = ["-o", "ControlMaster=auto", "-o", "ControlPersist=10"]
    shared += ["-o", f"ControlPath={enrolled.directory}/%C"]
    return subprocess.run(
        [
            *words,
            *unchecked,
            *shared,
            "-o",
            "LogLevel=error",
            f"{login}@{enrolled.address}",
            command,
        ],
        input="a do 1\n",
        capture_output=True,
        text=True,
        check=False,
    )


def _list_commands(place: Path, record: Path) -> Sequence[str]:
    return (
        "sudo -n id",
        "sudo -n sh -c 'touch /x'",
        f"sudo -n {PROGRAM_PATH} do 1",
        f"sudo -n sh {PROGRAM_PATH}",
        f"sudo -n -u root -g root {PROGRAM_PATH}",
        f"sudo -n -s {PROGRAM_PATH}",
        f"sudo -n -E {PROGRAM_PATH}",
        f"sudo -n BASH_ENV=/tmp/x {PROGRAM_PATH}",
        f"sudo -n env x=1 {PROGRAM_PATH}",
        f"sudo -n tee {place}/etc/keyturn/floor",
        f"echo 'signed 0 any' >>{place}/etc/keyturn/floor",
        f"echo 'eve ssh-ed25519 A' >>{place}/etc/keyturn/signers",
        f"mv {place}/etc/keyturn {place}/etc/other",
        f"rm -f {record}/since",
        f"mkdir {record}/x",
        f"ls {record}",
        f"cp /bin/true {PROGRAM_PATH}",
        f"ln -sf /bin/true {PROGRAM_PATH}",
        "sudo -n /usr/local/lib/keyturn/probation-arm-0",
        "sudo -n systemctl restart nginx",
        "sudo -n visudo -c",
        "sudo -n -e /etc/sudoers.d/keyturn",
    )


@pytest.mark.parametrize("login", [CHANGER, READER])
def test_logins_of_keyturn_change_nothing_on_an_enrolled_host(
    enrolled: EnrolledLogins, login: str
):
    before = _read_state(enrolled)
    for command in _list_commands(enrolled.directory, enrolled.record):
        assert _log_in(enrolled, login, command).returncode != 0, command
    assert _read_state(enrolled) == before


def _read_state(enrolled: EnrolledLogins) -> dict[str, str]:
    own = [enrolled.directory / "etc/keyturn/signers", enrolled.directory / "etc/keyturn/floor"]
    return {str(file): file.read_text() for file in [*own, enrolled.record / "since"]}


def test_changing_login_may_start_the_program_that_checks(enrolled: EnrolledLogins):
    answer = _log_in(enrolled, CHANGER, f"sudo -n {PROGRAM_PATH}")
    assert (answer.returncode, answer.stdout) == (64, "")
    assert answer.stderr == "not run: the document or the section is not complete\n"
