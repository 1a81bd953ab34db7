"""From the Debian package to the first approved change, in a bare Debian, as a new team does it.

`make walk` runs it. It needs root, and what apt on this machine can reach.
"""

import json
import re
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess

import httpx2
import pytest

from tests.bare.bare_root import BareRoot, Stopwatch
from tests.playground.haproxy import Haproxy
from tests.playground.keys import make_key
from tests.playground.sshd import Sshd

ROOT = Path(__file__).parents[2]
ABUSER = "203.0.113.9"
OLGA, DORA = 2001, 2002
UNIT = "/lib/systemd/system/keyturn.service"


@pytest.fixture
def debian() -> Iterator[BareRoot]:
    with BareRoot() as root:
        yield root


def succeed(done: CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"{done.args}: {done.stdout}{done.stderr}"
    return done.stdout


def read_start_of_unit(debian: BareRoot) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment that systemd would start the service with."""
    text = (debian.root / UNIT.lstrip("/")).read_text()
    [command] = re.findall(r"(?m)^ExecStart=(.*)$", text)
    [variables] = re.findall(r"(?m)^Environment=(.*)$", text)
    [user] = re.findall(r"(?m)^User=(.*)$", text)
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--no-new-privs"]
    places = ["--bounding-set=-all", "--inh-caps=-all", "env", "--chdir=/var/lib/keyturn"]
    environment = dict(one.split("=", 1) for one in variables.split())
    return [*become, *places, *command.split()], environment


def await_service(address: str) -> None:
    deadline = time.monotonic() + 300
    while True:
        try:
            if httpx2.get(f"{address}/readyz").status_code == 200:
                return
        except httpx2.TransportError:
            pass
        assert time.monotonic() < deadline, "the service did not start"
        time.sleep(0.05)


@pytest.mark.timeout(1200)
def test_package_leads_from_a_bare_debian_to_the_first_approved_change(debian: BareRoot):
    [package] = (ROOT / "dist").glob("*.deb")
    inside, watch = debian.inside, Stopwatch()
    (debian.root / "srv" / package.name).write_bytes(package.read_bytes())
    succeed(inside("apt-get", "update"))
    print(flush=True)

    installed = inside(
        "apt-get", "install", "--yes", "--no-install-recommends", f"/srv/{package.name}"
    )
    assert "keyturn init" in succeed(installed)
    watch.say("1. apt-get install ./keyturn_….deb")
    libraries = "find /opt/keyturn -name '*.so*' -type f -exec ldd {} + | grep 'not found' || true"
    assert succeed(inside("sh", "-c", libraries)) == ""
    watch = Stopwatch()

    people = ("--person", "Olga Berg <olga@example.com>", "--person", "Dora Lind")
    succeed(inside("keyturn", "init", *people, "--area", "edge"))
    watch.say("2. keyturn init")

    with Sshd() as host, Haproxy() as haproxy:
        port = str(find_port())
        settings = debian.root / "etc/keyturn/keyturn.env"
        settings.write_text(f"{settings.read_text()}KEYTURN_PORT={port}\n")
        token = make_scim_token(debian)
        command, variables = read_start_of_unit(debian)
        service = debian.begin(*command, **variables)
        await_service(f"http://127.0.0.1:{port}")
        watch.say("3. systemctl enable --now keyturn")
        check_programs_for_ansible(debian)
        check_providers_and_agents(f"http://127.0.0.1:{port}", token)
        with sign_in(debian, "olga") as browser:
            watch.say("   keyturn sign-in, and the page Set up")
            walk_to_the_first_change(debian, watch, host, haproxy, browser)
        debian.end()
        _, errors = service.communicate(timeout=60)
        assert "Traceback" not in errors, errors
    remove_and_purge(debian, package)


def make_scim_token(debian: BareRoot) -> str:
    """Type what docs/people.md says, but for the restart."""
    page = (debian.root / "usr/share/doc/keyturn/people.md").read_text()
    _, _, lines = page.partition("make a token of its own")[2].partition("```\n")
    typed = lines.partition("```")[0].replace("systemctl restart keyturn", "")
    succeed(debian.inside("sh", "-ec", typed))
    return (debian.root / "etc/keyturn/scim.token").read_text().strip()


def check_providers_and_agents(address: str, token: str) -> None:
    """Check that the package has what they are served by."""
    authorization = {"Authorization": f"Bearer {token}"}
    users = httpx2.get(f"{address}/scim/v2/Users", headers=authorization, timeout=60)
    assert (users.status_code, users.json()["totalResults"]) == (200, 0)
    assert httpx2.post(f"{address}/mcp", json={}, timeout=60).status_code == 401


def check_programs_for_ansible(debian: BareRoot) -> None:
    """As root, as the role does it: beside a play that only root can write."""
    hosts = {"web9": {"address": "192.0.2.9", "host_key": make_key().public, "area": "edge"}}
    place = debian.root / "srv/keyturn-hosts"
    place.mkdir()
    (place / "keyturn-hosts.json").write_text(json.dumps({"hosts": hosts}))
    words = ("keyturn-hosts.json", "keyturn-programs", "--json")
    program = ("/opt/keyturn/bin/keyturn", "host-list", "programs", *words)
    command = ("env", "--chdir=/srv/keyturn-hosts", *program)
    written = debian.inside(*command, KEYTURN_SETTINGS="/etc/keyturn/keyturn.env")
    assert json.loads(succeed(written))["changed"] == ["web9.sh"]
    assert (place / "keyturn-programs/web9.sh").stat().st_size


def find_port() -> int:
    from tests.playground.daemon import find_free_port

    return find_free_port("127.0.0.1")


@contextmanager
def sign_in(debian: BareRoot, person: str) -> Generator[httpx2.Client]:
    """Open the pages by the link that the terminal prints, as without Slack."""
    link = succeed(debian.inside("keyturn", "sign-in", person)).strip()
    origin = link.partition("/sign-in/")[0]
    with httpx2.Client(base_url=origin, headers={"Origin": origin}, timeout=60) as browser:
        assert browser.post(link).status_code == 303
        yield browser


def read_next_step(browser: httpx2.Client) -> str:
    """Return the step that the page Set up says is next; "" once it is complete."""
    answer = browser.get("/setup")
    page = answer.text
    assert answer.status_code == 200, re.sub(r"<[^>]*>", " ", page)[-2000:]
    found = re.search(r'aria-current="step">.*?<h2[^>]*>([^<]*)</h2>', page, re.DOTALL)
    assert found or "The first approved change is in the change log." in page
    return found[1] if found else ""


def walk_to_the_first_change(
    debian: BareRoot, watch: Stopwatch, host: Sshd, haproxy: Haproxy, browser: httpx2.Client
) -> None:
    inside = debian.inside
    assert read_next_step(browser) == "Add a host"
    for name, uid in (("olga", OLGA), ("dora", DORA)):
        succeed(inside("useradd", "--uid", str(uid), name))
    public = (debian.root / "etc/keyturn/policy/keys/keyturn.pub").read_text()
    with (host.directory / "authorized_keys").open("a") as keys:
        keys.write(public)
    watch = Stopwatch()

    address = f"{host.address}:{host.port}"
    words = ("--user", host.user, "--area", "edge", "--tags", "haproxy")
    enrolled = inside("keyturn", "inventory", "enrol", "lb1", address, *words, login=OLGA)
    fingerprint = read_fingerprint_on_the_console(host)
    succeed(enrolled)
    assert fingerprint in enrolled.stderr
    assert read_next_step(browser) == "Confirm the host lb1"
    refused = inside("keyturn", "inventory", "confirm", "lb1", fingerprint, login=OLGA)
    assert refused.returncode != 0, "one person enrolled and confirmed a host"
    succeed(inside("keyturn", "inventory", "confirm", "lb1", fingerprint, login=DORA))
    inventory = debian.root / "etc/keyturn/policy/inventory.yaml"
    setting = f"    settings:\n      haproxy.socket: {haproxy.socket('operator')}\n"
    text = inventory.read_text()
    inventory.write_text(text.replace("    tags:", f"{setting}    tags:", 1))
    watch.say("4. keyturn inventory enrol, confirm")
    assert read_next_step(browser) == "Run the first check"

    succeed(inside("keyturn", "inventory", "check"))
    watch.say("5. keyturn inventory check")

    tokens = {
        person: succeed(inside("keyturn", "token", "new", person, "--scope", scope)).split()[-1]
        for person, scope in (("olga", "approve"), ("dora", "request"))
    }
    done = inside("keyturn", "request", "abusers", "tables", "lb1", KEYTURN_TOKEN=tokens["dora"])
    succeed(done)
    watch.say("6. the first check")
    assert read_next_step(browser) == "Make the first approved change"

    haproxy.abuse(ABUSER)
    change = ("keyturn", "request", "abusers", "clear", "lb1", ABUSER)
    asked = inside(*change, "--reason", "they called", "--json", KEYTURN_TOKEN=tokens["dora"])
    run = json.loads(asked.stdout)
    number = str(run["id"] if "id" in run else run["run"])
    digest = json.loads(
        succeed(inside("keyturn", "run", number, "--json", KEYTURN_TOKEN=tokens["dora"]))
    )["digest"]
    succeed(inside("keyturn", "approve", number, digest, KEYTURN_TOKEN=tokens["olga"]))
    assert ABUSER not in haproxy.runtime("show table http")
    watch.say("7. the first approved change")
    assert read_next_step(browser) == ""

    assert "intact" in succeed(inside("keyturn", "changelog", "verify"))
    doctor = inside("keyturn", "doctor", "--json")
    errors = [one for one in json.loads(doctor.stdout)["findings"] if one["level"] == "error"]
    assert not errors, errors
    watch.say("8. keyturn changelog verify, keyturn doctor")


def read_fingerprint_on_the_console(host: Sshd) -> str:
    command = ["ssh-keygen", "-lf", str(host.directory / "host_ed25519")]
    shown = subprocess.run(command, check=True, capture_output=True, text=True)
    return shown.stdout.split()[1]


def remove_and_purge(debian: BareRoot, package: Path) -> None:
    inside = debian.inside
    again = inside("apt-get", "install", "--yes", "--reinstall", f"/srv/{package.name}")
    assert "keyturn doctor" in succeed(again)
    succeed(inside("apt-get", "remove", "--yes", "keyturn"))
    assert not (debian.root / "opt/keyturn").exists()
    assert (debian.root / "etc/keyturn/keyturn.env").exists()
    purged = succeed(inside("apt-get", "purge", "--yes", "keyturn"))
    assert "kept /var/lib/keyturn: keep a copy of the change log" in purged
    assert (debian.root / "var/lib/keyturn/keyturn.db").exists()
    assert (debian.root / "var/lib/keyturn/changelog.key").exists()
    assert not (debian.root / "etc/keyturn/keyturn.env").exists()
    assert (debian.root / "etc/keyturn/policy/people.yaml").exists()
