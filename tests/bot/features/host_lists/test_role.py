"""The Ansible role, by the real ansible-playbook against real sshd, up to the confirmed list."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from bot.features.host_lists.actions import HostListActions
from bot.features.host_lists.changes import HostListFile
from bot.features.host_lists.state import HostList
from bot.features.host_lists.writing import write_confirmed_lists
from bot.hosts.live_check import check_hosts
from bot.model.approvals import ApprovalRequirements
from bot.model.run import State
from bot.policy import Policy, PolicyRequest, Ruling
from bot.policy.loader import load_policy
from bot.service import KeyturnService
from connectors.fleet import Fleet
from connectors.ssh_pool import SshPool
from runbooks import load_catalogue
from tests.bot.harness import Harness
from tests.campaigns import CHAOS
from tests.playground.ansible import BareHost, write_ansible_inventory
from tests.playground.daemon import root
from tests.playground.enrolled_service import TouchFile, create_keys
from tests.playground.keys import KeyPair, make_key
from tests.policies import give_signing_key, write_policy

ROLES = Path(__file__).parents[4] / "deploy" / "ansible" / "roles"
BIN = Path(sys.executable).parent
_PLAYBOOK = [{"hosts": "all", "gather_facts": False, "roles": ["keyturn_host"]}]


class RolePlay:
    """Hosts, and the controller from which the role sets them up."""

    def __init__(self, directory: Path, policy: Path, *, count: int) -> None:
        self.directory, self.policy = directory, policy
        self.root_key = make_key()
        self.root_key.write(directory / "root.key")
        self.login_key, self.reader_key = make_key(), make_key()
        self.hosts = {f"farm{n}": BareHost(self.root_key) for n in range(1, count + 1)}
        (directory / "play.yml").write_text(json.dumps(_PLAYBOOK))
        self.variables: dict[str, Any] = {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(directory / "root.key"),
            "ansible_ssh_common_args": "-F none -o StrictHostKeyChecking=no "
            "-o UserKnownHostsFile=/dev/null",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_pipelining": True,
            "keyturn_public_key": self.login_key.public,
            "keyturn_area": "web",
            "keyturn_tags": ["nginx"],
            "keyturn_reader": "kt-read",
            "keyturn_reader_public_key": self.reader_key.public,
            "keyturn_command": [sys.executable, "-m", "bot"],
        }

    @contextmanager
    def started(self) -> Generator[Self]:
        with ExitStack() as stack:
            for host in self.hosts.values():
                stack.enter_context(host)
            yield self

    @property
    def listed(self) -> Path:
        return self.directory / "keyturn-hosts.json"

    def run(self, *options: str, check: bool = True, **variables: Any) -> str:
        """Run the role, and return what ansible-playbook printed."""
        inventory = write_ansible_inventory(
            self.directory / "inventory.json", self.hosts, {**self.variables, **variables}
        )
        env = {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": str(self.directory),
            "LANG": "C.UTF-8",
            "ANSIBLE_ROLES_PATH": str(ROLES),
            "ANSIBLE_LOCALHOST_WARNING": "False",
            "ANSIBLE_FORKS": "10",
            # The path of a socket is short.
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(root() / "ansible"),
            "ANSIBLE_RETRY_FILES_ENABLED": "False",
            "PYTHONPATH": str(ROLES.parents[2]),
            "KEYTURN_POLICY": str(self.policy),
        }
        command = [BIN / "ansible-playbook", "-i", inventory, "play.yml", *options]
        done = subprocess.run(
            command, cwd=self.directory, env=env, text=True, capture_output=True, check=False
        )
        assert (done.returncode == 0) is check, done.stdout + done.stderr
        return done.stdout

    def recap(self, output: str) -> Mapping[str, Mapping[str, int]]:
        """Return the counts of each host, such as `changed`."""
        lines = output.partition("PLAY RECAP")[2].splitlines()[1:]
        return {
            name.strip(): {
                word.partition("=")[0]: int(word.partition("=")[2]) for word in counts.split()
            }
            for line in lines
            if ":" in line
            for name, _, counts in [line.partition(":")]
        }

    def look(
        self, name: str, command: str, login: str = "root", key: KeyPair | None = None
    ) -> str:
        """Run a command on a host and return what it printed."""
        host = self.hosts[name]
        file = (key or self.root_key).write(self.directory / f"{login}.key")
        words = ["ssh", "-F", "none", "-i", str(file), "-p", str(host.port)]
        unchecked = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
        done = subprocess.run(
            [*words, *unchecked, f"{login}@{host.address}", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout


_COUNT = 300 if CHAOS else 1


@pytest.mark.timeout(3600)
def test_hosts_of_the_role_are_enrolled_by_one_confirmation(harness: Harness, tmp_path: Path):
    policy = harness.policies.path
    with RolePlay(tmp_path, policy, count=_COUNT).started() as play:
        play.login_key.write(policy / "keys" / "keyturn")
        play.reader_key.write(policy / "keys" / "keyturn-read")
        _expect_success(play.recap(play.run()), count=_COUNT)
        assert _confirm_list(harness, play).summary == f"{_COUNT} added"
        inventory = load_policy(policy).inventory
        names = list(play.hosts)
        assert {name: inventory[name].host_key for name in names} == {
            name: host.host_key for name, host in play.hosts.items()
        }
        fleet = Fleet(inventory, SshPool(policy))
        try:
            checks = list(check_hosts(fleet, names, load_catalogue()))
        finally:
            fleet.close()
        assert [one for one in checks if not one.is_healthy] == []
        assert len(checks) == _COUNT
        if not CHAOS:
            _check_rights(play)


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not CHAOS, reason="a long campaign: make chaos")
def test_hosts_of_the_role_that_check_signatures_run_what_two_people_signed(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    policy = harness.policies.path
    keys = create_keys(tmp_path)
    for person in ("dora", "olga"):
        give_signing_key(policy, person, keys[person].line)
    with RolePlay(tmp_path, policy, count=1).started() as play:
        play.login_key.write(policy / "keys" / "keyturn")
        play.reader_key.write(policy / "keys" / "keyturn-read")
        _expect_success(play.recap(play.run(keyturn_rights="signatures")), count=1)
        assert play.recap(play.run(keyturn_rights="signatures"))["farm1"]["changed"] == 0
        _confirm_list(harness, play)
        sudo = play.look(
            "farm1", "sudo -n /usr/bin/touch /etc/unsigned", "keyturn", play.login_key
        )
        assert sudo == ""
        with _open_service(harness) as service:
            run = service.request(TouchFile.model_validate({"host": "farm1", "file": _MADE}))
            assert run.state is State.PENDING, run.summary
            assert run.plan is not None
            dora, olga = (keys[one].sign(run.plan.document.encode()) for one in ("dora", "olga"))
            service.service.sign_request(run.id, person="dora", digest=run.digest, signature=dora)
            service.service.approve_run(run.id, person="olga", digest=run.digest, signature=olga)
            service.run_queued_work()
            done = service.get_run(run.id)
            assert done.state is State.SUCCEEDED, done.summary
            assert play.look("farm1", f"ls {_MADE}") == f"{_MADE}\n"

            # A Keyturn without its own check sends it all the same.
            real = Policy.get_request_ruling

            def ask_no_one(policy: Policy, request: PolicyRequest) -> Ruling:
                return replace(real(policy, request), requirements=ApprovalRequirements())

            monkeypatch.setattr(Policy, "get_request_ruling", ask_no_one)
            other = f"{_MADE}-unsigned"
            run = service.request(TouchFile.model_validate({"host": "farm1", "file": other}))
            assert run.state is State.FAILED
            assert "needs the signatures of 2 people, and has those of no one" in run.summary
            assert play.look("farm1", f"ls {other}") == ""


_MADE = "/etc/made-by-keyturn"


def _confirm_list(harness: Harness, play: RolePlay) -> HostList:
    """Let two people stand behind the list of the role, and write it."""
    actions, policy = harness.service.bind(HostListActions), harness.policies.path
    listed = HostListFile.model_validate_json(play.listed.read_text())
    proposed = actions.propose(listed, person="dora")
    actions.confirm(proposed.number, person="olga", digest=proposed.digest)
    assert write_confirmed_lists(harness.database, harness.policies, policy) == {}
    return proposed


@contextmanager
def _open_service(harness: Harness) -> Generator[Harness]:
    """Start a service that reaches the hosts of the inventory, with the database of another."""
    policy = harness.policies.path
    fleet = Fleet(load_policy(policy).inventory, SshPool(policy))
    runbooks = {**harness.context.runbooks, TouchFile.words: TouchFile}
    context = replace(harness.context, fleet=fleet, runbooks=runbooks)
    try:
        yield replace(harness, service=KeyturnService(context), context=context)
    finally:
        fleet.close()


def _expect_success(counts: Mapping[str, Mapping[str, int]], *, count: int) -> None:
    assert len(counts) == count
    assert sum(one["failed"] + one["unreachable"] for one in counts.values()) == 0


@pytest.mark.skipif(not CHAOS, reason="a long campaign: make chaos")
def test_check_mode_and_a_second_run_change_nothing(tmp_path: Path):
    policy = write_policy(tmp_path / "policy").path
    with RolePlay(tmp_path, policy, count=1).started() as play:
        counts = play.recap(play.run("--check"))
        _expect_success(counts, count=1)
        assert all(one["changed"] > 0 for one in counts.values())
        assert not play.listed.exists()
        assert play.look("farm1", "getent passwd keyturn; ls /usr/local/lib/keyturn") == ""
        assert play.recap(play.run())["farm1"]["changed"] > 0
        assert play.recap(play.run())["farm1"]["changed"] == 0


def _check_rights(play: RolePlay) -> None:
    assert play.look("farm1", "id -un", "keyturn", play.login_key) == "keyturn\n"
    assert play.look("farm1", "id -un", "kt-read", play.reader_key) == "kt-read\n"
    assert "restrict ssh-ed25519" in play.look("farm1", "cat ~keyturn/.ssh/authorized_keys")
    sudo = play.look("farm1", "sudo -n -l", "keyturn", play.login_key)
    assert "NOPASSWD" in sudo
    assert "(ALL) ALL" not in sudo


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("keyturn_public_key", "ssh-ed25519 AAAA\nssh-ed25519 BBBB"),
        ("keyturn_key_options", "restrict\nssh-ed25519 BBBB"),
    ],
)
def test_role_refuses_variables_with_a_second_line(tmp_path: Path, name: str, value: str):
    """Before it contacts any host."""
    play = RolePlay(tmp_path, write_policy(tmp_path / "policy").path, count=1)
    assert "set keyturn_public_key" in play.run(check=False, **{name: value})
