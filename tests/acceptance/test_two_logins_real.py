"""A host with a reading and a changing login, over a real sshd, sudo and nginx."""

import json
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bot.hosts.live_check import check_host
from connectors import nginx_agents
from connectors.command import Shell
from connectors.errors import CommandError, SetupError
from connectors.fleet import Fleet
from connectors.inventory import Host, Inventory
from connectors.ssh_pool import SshPool
from runbooks.agents import BlockAgent
from tests.acceptance.direct_execution import execute_plan, undo_plan
from tests.cli_process import run_keyturn
from tests.playground.nginx import Nginx
from tests.playground.two_logins import CHANGER, READER, TwoLogins
from tests.policies import write_policy

pytestmark = pytest.mark.real

BLOCK = BlockAgent.model_validate({"host": "web1", "agent": "Evil Bot/2"})


@pytest.fixture
def sshd() -> Iterator[TwoLogins]:
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root may give a server logins of its own")
    nginx = Nginx("include keyturn-agents.conf;")
    (nginx.directory / "keyturn-agents.conf").touch()
    settings = {
        "nginx.config": str(nginx.configuration),
        "nginx.agents": f"{nginx.directory}/keyturn-agents.conf",
    }
    with nginx, TwoLogins(tags=("nginx",), settings=settings) as sshd:
        yield sshd


@contextmanager
def _fleet(host: Host) -> Generator[Fleet]:
    entry = host.model_dump(mode="json", exclude={"name"}, exclude_none=True)
    fleet = Fleet(Inventory.model_validate({"hosts": {host.name: entry}}), SshPool(Path("/")))
    try:
        yield fleet
    finally:
        fleet.close()


def test_queries_use_the_reading_login_and_changes_the_changing_login(
    sshd: TwoLogins, tmp_path: Path
):
    with _fleet(sshd.host()) as fleet:
        fleet.run_query("web1", nginx_agents.query_agents())
        assert (sshd.logins_of(READER), sshd.logins_of(CHANGER)) == (1, 0)
        _try_runbook(sshd, tmp_path)
        assert (sshd.logins_of(READER), sshd.logins_of(CHANGER)) == (2, 0)
        plan = execute_plan(fleet, BLOCK)
        assert fleet.run_query("web1", nginx_agents.query_agents()).refused == ("Evil Bot/2",)
        undo_plan(fleet, BLOCK, plan)
        assert (sshd.logins_of(READER), sshd.logins_of(CHANGER)) == (2, 1)
    (step,) = plan.steps
    command = sshd.host().resolve(step.do)
    assert str(command).startswith("sudo -n -- /usr/local/lib/keyturn/nginx-agents-")


def _try_runbook(sshd: TwoLogins, place: Path) -> None:
    """Try the change on the command line, which records what the host returned."""
    policies = write_policy(place / "policy")
    entry = sshd.host().model_dump(mode="json", exclude={"name"}, exclude_none=True)
    inventory = json.dumps({"hosts": {"web1": entry}})
    (policies.path / "inventory.yaml").write_text(inventory)
    words = ["agents", "block", "web1", "Evil Bot/2", "--record", "before"]
    tried = run_keyturn(place, "runbook", "try", *words, "--directory", str(place))
    assert tried.returncode == 0, tried.stderr
    assert "$ sudo -n -- /usr/local/lib/keyturn/nginx-agents-" in tried.stdout
    assert "Sudo lines that it needs on web1:" in tried.stdout
    assert f"{CHANGER} ALL=(root) NOPASSWD: /usr/local/lib/keyturn/nginx-agents-" in tried.stdout
    recorded = place / "tests" / "recorded" / "agents_block" / "before.json"
    assert json.loads(recorded.read_text())["values"]["agent"] == "Evil Bot/2"
    tested = run_keyturn(place, "runbook", "test", "agents block", "--directory", str(place))
    assert "untested  agents block: empty after apply" in tested.stdout
    assert "ok        agents block: sudo rules" in tested.stdout


def test_sudo_refuses_each_login_the_commands_of_the_other(sshd: TwoLogins):
    reader = {"user": READER, "key": str(sshd.directory / READER), "reader": None}
    with (
        _fleet(sshd.host(**reader)) as fleet,
        pytest.raises(CommandError, match="the login may not run this with sudo"),
    ):
        fleet.run_command("web1", nginx_agents.block_agent("Evil Bot/2"))
    with (
        _fleet(sshd.host(reader=None)) as fleet,
        pytest.raises(CommandError, match="the login may not run this with sudo"),
    ):
        fleet.run_query("web1", nginx_agents.query_agents())


@pytest.mark.parametrize(
    "words",
    [
        ("id",),
        ("sh", "-c", "id"),
        ("nginx", "-T", "-q", "-c", "/etc/passwd"),
        ("tee", "/usr/local/lib/keyturn/x"),
    ],
)
def test_sudo_refuses_both_logins_any_other_command(sshd: TwoLogins, words: tuple[str, ...]):
    for user in (READER, CHANGER):
        login = {"user": user, "key": str(sshd.directory / user), "reader": None}
        with (
            _fleet(sshd.host(**login)) as fleet,
            pytest.raises(CommandError, match="the login may not run this with sudo"),
        ):
            fleet.run_command("web1", Shell(words, root=True))


def test_missing_script_or_program_is_reported_instead_of_sudo_rules(sshd: TwoLogins):
    with _fleet(sshd.host()) as fleet:
        script = ("/usr/local/lib/keyturn/nginx-agents-000000000000", "x")
        with pytest.raises(CommandError, match="this script is missing on the host"):
            fleet.run_command("web1", Shell(script, root=True))
        with pytest.raises(CommandError, match="program zpool-nowhere is missing: install it"):
            fleet.run_command("web1", Shell(("zpool-nowhere", "status"), root=True))


def test_host_without_changes_allowed_uses_only_the_reading_login(sshd: TwoLogins):
    with _fleet(sshd.host(changes=False)) as fleet:
        fleet.run_query("web1", nginx_agents.query_agents())
        with pytest.raises(SetupError, match="changes are not allowed on web1"):
            fleet.run_command("web1", nginx_agents.block_agent("Evil Bot/2"))
        with pytest.raises(SetupError, match="changes are not allowed on web1"):
            fleet.resolve_command("web1", nginx_agents.block_agent("Evil Bot/2"))
    assert sshd.logins_of(CHANGER) == 0


def test_inventory_check_tries_both_logins_and_finds_missing_scripts(sshd: TwoLogins):
    with _fleet(sshd.host()) as fleet:
        check = check_host(fleet, "web1")
        assert (check.root, check.error) == ("sudo", "")
        assert (sshd.logins_of(READER), sshd.logins_of(CHANGER)) == (1, 1)
    with _fleet(sshd.host(tags=("nginx", "csf"))) as fleet:
        check = check_host(fleet, "web1")
        assert not check.is_healthy
        assert "install what `keyturn sudoers web1 --scripts` prints" in check.error
        assert "csf-load" in check.error
        assert "the program /usr/sbin/csf is missing" in check.error
    other = {"user": CHANGER, "key": str(sshd.directory / READER)}
    with _fleet(sshd.host(**other, reader=None)) as fleet:
        assert check_host(fleet, "web1").login is False


def _run_inside_namespace(sshd: TwoLogins, script: str) -> None:
    """Run a shell as root where this server sees its own /etc and /usr/local/lib."""
    words = ["nsenter", "--target", str(sshd.pid), "--mount", "sh", "-ec", script]
    subprocess.run(words, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ("sed -i '/sysctl/d' /etc/sudoers.d/keyturn", "sudo rules are missing (sysctl for "),
        (
            "sed -i '/block-set\\|systemctl\\|service-test/d' /etc/sudoers.d/keyturn",
            "sudo rules are missing (service-test for service reload",
        ),
        ("rm /usr/local/lib/keyturn/service-control-*", "scripts are missing (service-control-"),
        (
            "echo true >>$(ls /usr/local/lib/keyturn/nginx-agents-*)",
            "scripts are changed or not executable (nginx-agents-",
        ),
        (
            "chmod 644 /usr/local/lib/keyturn/nginx-agents-*",
            "scripts are changed or not executable (nginx-agents-",
        ),
    ],
)
def test_inventory_check_finds_each_missing_sudo_rule_and_altered_script(
    sshd: TwoLogins, harm: str, words: str
):
    with _fleet(sshd.host()) as fleet:
        assert check_host(fleet, "web1").error == ""
        _run_inside_namespace(sshd, harm)
        check = check_host(fleet, "web1")
    assert not check.is_healthy
    assert words in check.error
    assert "install what `keyturn sudoers web1 --scripts` prints" in check.error
