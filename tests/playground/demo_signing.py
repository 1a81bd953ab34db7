"""Two keys in the demo: passkeys of software, and what becomes of a stolen Keyturn."""

import base64
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import httpx2

from bot.db import search
from bot.hosts.host_files import Signer
from bot.model.plan import ResolvedPlan, create_nonce
from bot.model.run import Run, State
from connectors.run_signed import PROGRAM_PATH, frame_input
from tests.bot.signing.soft_passkey import SoftPasskey
from tests.playground.daemon import find_free_port
from tests.playground.enrolled import EnrolledLogins
from tests.playground.fleet import Enrolment
from tests.playground.service import Service
from tests.playground.two_logins import CHANGER
from tests.policies import give_signing_key

SITE = "localhost"
_PATH = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


def can_enrol() -> bool:
    """Return whether a host can be given logins of its own here: root only."""
    tried = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    return os.geteuid() == 0 and tried.returncode == 0


def choose_port() -> int:
    """Return the port of the service: passkeys belong to its address before it starts."""
    return int(os.environ.get("KEYTURN_PORT", "0")) or find_free_port("127.0.0.1")


class Passkeys:
    """The passkeys of everyone in the demo. port: of the service."""

    def __init__(self, port: int) -> None:
        self.page = f"http://{SITE}:{port}"
        self._keys = {name: SoftPasskey(SITE) for name in ("dora", "olga", "adam", "stan")}

    def add_to_policy(self, policy: Path) -> None:
        for name, key in self._keys.items():
            give_signing_key(policy, name, key.public.line)

    @property
    def enrolment(self) -> Enrolment:
        signers = [Signer(name, key.public.line) for name, key in self._keys.items()]
        return Enrolment(signers, ["olga", "adam"], self.page)

    def sign(self, service: Service, run: Run, person: str) -> None:
        """Send the signature of a person over a plan, as the signing page does."""
        assert run.plan
        made = self._keys[person].answer_browser(run.plan.document.encode(), origin=self.page)
        form = {name: base64.urlsafe_b64encode(value).decode() for name, value in made.items()}
        fields = {"run": str(run.id), "person": person, **form}
        here = f"http://127.0.0.1:{service.keyturn.settings.port}/signatures"
        answer = httpx2.post(here, data=fields, headers={"Host": self.page[7:]})
        if not answer.is_redirect:
            raise RuntimeError(f"the signature of {person} was refused: {answer.text}")


def find_pending(service: Service) -> Run | None:
    """Return the newest run that waits for signatures; None if there is none."""
    pending = search.RunFilter(states=frozenset({State.PENDING}))
    with service.keyturn.database.reading() as tx:
        return next(iter(search.find_newest_runs(tx, pending, most=1)), None)


def try_as_thief(
    host: EnrolledLogins, socket: str, plan: ResolvedPlan
) -> Iterator[tuple[str, str]]:
    """Yield what a stolen Keyturn tries on an enrolled host, and what the host answers.

    socket: of HAProxy. plan: that people signed.
    """
    (section,) = plan.sections
    forged = replace(plan, nonce=create_nonce())
    own = SoftPasskey(SITE)
    approvals = [own.sign(forged.document.encode(), origin="http://localhost")] * 2
    direct = f"socat stdio UNIX-CONNECT:{socket}"
    tries: Mapping[str, tuple[str, str]] = {
        "to empty the table": (direct, "clear table http\n"),
        "the same by sudo": (f"sudo -n {direct}", "clear table http\n"),
        "the plan again, with approvals that it makes itself": (
            f"sudo -n {PROGRAM_PATH}",
            frame_input("do", 1, forged.document, section.text, approvals),
        ),
    }
    for what, (command, sent) in tries.items():
        yield what, _log_in(host, command, sent).replace(str(host.directory), "")


def _log_in(host: EnrolledLogins, command: str, sent: str) -> str:
    """Run a command with the key of Keyturn's login; return the last line of its answer."""
    words = ["ssh", "-F", "none", "-i", str(host.directory / CHANGER), "-p", str(host.port)]
    unchecked = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    done = subprocess.run(
        [*words, *unchecked, "-o", "LogLevel=error", f"{CHANGER}@{host.address}", command],
        input=sent,
        capture_output=True,
        text=True,
        check=False,
        env=_PATH,
    )
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines and done.returncode else ""
