"""Two people change an enrolled host over a real sshd and sudo while Keyturn is down."""

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pytest
from ruamel.yaml import YAML

from bot.audit import change_log, events
from bot.audit.change_log import Entry
from bot.features.offline.reader import OfflineReader
from bot.hosts.host_files import Signer
from connectors import haproxy
from connectors.step_marker import MARKER_SETTING
from tests.cli_process import Typed, begin, run_command
from tests.playground.enrolled import EnrolledLogins
from tests.playground.haproxy import Haproxy
from tests.playground.keys import make_key
from tests.playground.service import Service
from tests.playground.two_logins import CHANGER, READER
from tests.policies import give_signing_key, write_policy

pytestmark = pytest.mark.real

PAGE = (Path(__file__).parents[2] / "docs/offline.md").read_text()
ADDRESS = "203.0.113.9"
PEOPLE = ("olga", "adam")


def _read_drill() -> Sequence[str]:
    """Return the commands of the drill, in their order, without what goes to the service."""
    section = PAGE.partition("## The drill\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return "".join(blocks).splitlines()


@dataclass
class Laptop:
    """The laptop of one person: their home with their key, and a clone of the policy."""

    person: str
    home: Path

    def type(self, line: str, **more: str) -> Typed:
        """Type a line of a shell, and answer yes to a question."""
        words = [str(Path(word)) for word in shlex.split(line.replace("~", str(self.home)))]
        assert words[0] == "keyturn"
        env = {
            **os.environ,
            "HOME": str(self.home),
            "LOGNAME": self.person,
            "KEYTURN_POLICY": str(self.home / "policy"),
            **more,
        }
        ours, theirs = os.openpty()
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            os.write(ours, b"y\n")
            streams = [theirs, out.fileno(), err.fileno()]
            status = begin(words[1:], streams, env=env, where=self.home).wait()
            os.close(theirs)
            os.close(ours)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(words, status, out.read(), err.read())


@dataclass
class Site:
    """An enrolled balancer, and the laptops of its owners."""

    host: EnrolledLogins
    haproxy: Haproxy
    laptops: Mapping[str, Laptop]

    def read_plan(self, person: str) -> str:
        return (self.laptops[person].home / "plan.txt").read_text()

    def send_plan(self, sender: str, receiver: str) -> None:
        (self.laptops[receiver].home / "plan.txt").write_text(self.read_plan(sender))


@pytest.fixture(scope="module")
def machines() -> Iterator[tuple[EnrolledLogins, Haproxy]]:
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root may give a server logins of its own")
    assert (
        run_command(["--version"], env=os.environ).returncode == 0
    )  # loads what all of them need
    with Haproxy() as balancer:
        host = EnrolledLogins(
            name="lb1",
            tags=("haproxy",),
            settings={
                "haproxy.socket": balancer.socket("operator"),
                "haproxy.config": str(balancer.config),
                MARKER_SETTING: "/nowhere",
            },
            people=PEOPLE,
            owners=PEOPLE,
            signers=(),
        )
        host.signers += [Signer(name, host.keys[name].public) for name in PEOPLE]
        with host:
            yield host, balancer


@pytest.fixture
def site(tmp_path: Path, machines: tuple[EnrolledLogins, Haproxy]) -> Site:
    host, balancer = machines
    laptops: dict[str, Laptop] = {}
    for name in PEOPLE:
        laptops[name] = laptop = Laptop(name, tmp_path / name)
        policy = write_policy(laptop.home / "policy").path
        entry = host.host(area="edge").model_dump(mode="json", exclude={"name"}, exclude_none=True)
        with (policy / "inventory.yaml").open("w") as file:
            yaml = YAML()
            yaml.width = 200  # a public key stays on its line
            yaml.dump({"hosts": {"lb1": entry}}, file)
        for person in PEOPLE:
            give_signing_key(policy, person, host.keys[person].public)
        (laptop.home / ".ssh").mkdir()
        host.keys[name].write(laptop.home / ".ssh/id_ed25519")
        (laptop.home / ".ssh/id_ed25519.pub").write_text(f"{host.keys[name].public}\n")
    return Site(host, balancer, laptops)


def _do_drill(site: Site) -> Sequence[Typed]:
    """Type the commands of the page, each on the laptop of who it names, who got the file."""
    typed: list[Typed] = []
    sender = ""
    for line in _read_drill():
        found = re.search(r"--as (\w+)", line)
        if found is None:
            continue
        person = found[1]
        if sender not in ("", person):
            site.send_plan(sender, person)
        sender = person
        typed.append(done := site.laptops[person].type(line))
        assert done.returncode == 0, (line, done.stdout, done.stderr)
    return typed


@pytest.fixture
def blocked(site: Site) -> Site:
    site.haproxy.abuse(ADDRESS)
    assert site.haproxy.marked(ADDRESS)
    return site


def test_two_people_change_the_host_by_the_commands_of_the_page(blocked: Site):
    plan, first, second, run = _do_drill(blocked)
    assert [done.args[2] for done in (plan, first, second, run)] == ["plan", "sign", "sign", "run"]
    assert "do    socat" in plan.stdout
    assert "do    socat" in second.stderr
    assert "Signed by olga, adam" in second.stdout
    assert "Verified: 203.0.113.9 is not in table http" in run.stdout
    assert not blocked.haproxy.marked(ADDRESS)
    record = blocked.laptops["adam"].home / "plan.txt.record"
    assert record.read_text().startswith(blocked.read_plan("adam"))
    assert "Z  Step 1 succeeded" in record.read_text().replace(" UTC  ", "Z  ")


def test_plan_runs_once(blocked: Site):
    _plan_and_sign(blocked, "olga", "adam")
    line = "keyturn offline run plan.txt --as olga"
    done = blocked.laptops["olga"].type(f"{line} --json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["file"], told["state"], told["host"]) == ("plan.txt.record", "succeeded", "lb1")
    assert any(event.endswith("Step 1 succeeded") for event in told["events"]), told
    blocked.haproxy.abuse(ADDRESS)
    again = blocked.laptops["olga"].type(line)
    assert again.returncode == 4
    assert "lb1 has run this plan already: step 1 began at" in again.stderr
    assert blocked.haproxy.marked(ADDRESS)


def _plan_and_sign(site: Site, *people: str) -> None:
    """Plan as Olga, and sign as these people, so that Olga has the file."""
    done = site.laptops["olga"].type(f"{_read_drill()[1]} --json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["requested_by"] == "olga"
    for person in people:
        site.send_plan("olga", person)
        line = f"keyturn offline sign plan.txt --as {person}"
        assert site.laptops[person].type(line).returncode == 0
        site.send_plan(person, "olga")


def test_run_is_refused_while_a_signature_is_missing(blocked: Site):
    _plan_and_sign(blocked, "olga")
    refused = blocked.laptops["olga"].type("keyturn offline run plan.txt --as olga")
    assert refused.returncode == 4
    assert "it has to be signed by 1 of the owners of the edge, and is signed by olga" in (
        refused.stderr
    )
    assert blocked.haproxy.marked(ADDRESS)


def test_freeze_holds_what_is_run_offline_too(blocked: Site):
    freeze = 'freezes: [{name: fair, from: "1999-01-01 00:00", until: "2999-01-01 00:00"}]\n'
    for laptop in blocked.laptops.values():
        (laptop.home / "policy/freezes.yaml").write_text(freeze)
    _plan_and_sign(blocked, "olga", "adam")
    held = blocked.laptops["olga"].type("keyturn offline run plan.txt --as olga")
    assert held.returncode == 4, held
    assert "nothing was sent: " in held.stderr
    assert "fair" in held.stderr
    assert blocked.haproxy.marked(ADDRESS)


def test_host_with_another_key_is_sent_nothing(blocked: Site):
    _plan_and_sign(blocked, "olga", "adam")
    olga = blocked.laptops["olga"]
    inventory = olga.home / "policy/inventory.yaml"
    text = inventory.read_text()
    assert blocked.host.host_key in text
    inventory.write_text(text.replace(blocked.host.host_key, make_key().public))
    refused = olga.type("keyturn offline run plan.txt --as olga")
    assert refused.returncode == 4
    assert "what it says of lb1, has changed since the plan was made" in refused.stderr
    refused = olga.type(_read_drill()[1].replace("plan.txt", "other.txt"))
    assert refused.returncode == 4
    assert "lb1 (127.0.0.1:" in refused.stderr
    assert not (olga.home / "other.txt").exists()
    assert blocked.haproxy.marked(ADDRESS)


def test_login_of_keyturn_reads_haproxy_and_cannot_change_it(blocked: Site):
    script = next(rule.script for rule in haproxy.SUDO if rule.script)
    command = f"sudo -n {script.path} UNIX-CONNECT:{blocked.haproxy.socket('operator')}"
    assert ADDRESS in _log_in(blocked.host, READER, command, "show table http\n").stdout
    for line in (
        f"clear table http key {ADDRESS}\n",
        f"show table http; clear table http key {ADDRESS}\n",
        f"show table\\\nclear table http key {ADDRESS}\n",
        f" show peers\x00;clear table http key {ADDRESS}\n",
        "show env\n",
        "\n",
        "",
    ):
        assert _log_in(blocked.host, READER, command, line).returncode != 0, line
    direct = f"socat stdio UNIX-CONNECT:{blocked.haproxy.socket('operator')}"
    for login in (READER, CHANGER):
        clear = f"clear table http key {ADDRESS}\n"
        assert _log_in(blocked.host, login, direct, clear).returncode != 0
    assert blocked.haproxy.marked(ADDRESS)


def _log_in(host: EnrolledLogins, login: str, command: str, sent: str) -> Typed:
    words = ["ssh", "-F", "none", "-i", str(host.directory / login), "-p", str(host.port)]
    unchecked = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    return subprocess.run(
        [*words, *unchecked, "-o", "LogLevel=error", f"{login}@{host.address}", command],
        input=sent,
        capture_output=True,
        text=True,
        check=False,
    )


def test_keyturn_logs_what_people_changed_once_it_is_back(blocked: Site, tmp_path: Path):
    _do_drill(blocked)
    shutil.copytree(blocked.laptops["adam"].home / "policy", tmp_path / "policy")
    with Service(tmp_path, slack="") as service:
        entry = _wait_for_entry(service, "changed offline")
        assert (entry.host, entry.person) == ("lb1", "olga")
        event = entry.event
        assert isinstance(event, events.ChangedOffline)
        assert event.signers == ("olga", "adam")
        assert event.request == f"abusers clear lb1 {ADDRESS}"
        assert [end for _, end in event.steps.values()] == [0]
        OfflineReader(service.keyturn.service.bind(lambda it: it), Event()).read_hosts()
        digests = [one.facts["digest"] for one in _list_entries(service, "changed offline")]
        assert len(digests) == len(set(digests))
        _, token = service.keyturn.service.tokens.create_token(
            person="olga", scopes=("read",), days=1, source="cli"
        )
        (line,) = (line for line in _read_drill() if line.startswith("keyturn changed"))
        told = blocked.laptops["olga"].type(line, KEYTURN_URL=service.address, KEYTURN_TOKEN=token)
        assert f"abusers clear lb1 {ADDRESS}, offline" in told.stdout, told
        assert "signed by olga, adam" in told.stdout


def _list_entries(service: Service, kind: str) -> Sequence[Entry]:
    with service.keyturn.database.reading() as tx:
        return list(change_log.list_entries_since(tx, kind, 0))


def _wait_for_entry(service: Service, kind: str) -> Entry:
    deadline = time.monotonic() + 15
    while not (found := _list_entries(service, kind)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found[0]
