"""An enrolled host over real sshd and sudo, and what a thief of its Keyturn does to it."""

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import update

from bot.audit import change_log, events
from bot.db import runs, tables
from bot.db.database import Transaction
from bot.hosts.host_files import Signer
from bot.model.run import Decision, Run, State
from connectors.run_signed import PROGRAM_PATH, frame_input
from tests.bot.signing.soft_passkey import SoftPasskey
from tests.bot.signing.ssh_key import SshKey
from tests.guarantee.signed_host import PAGE
from tests.playground import stray_processes
from tests.playground.enrolled import EnrolledLogins
from tests.playground.enrolled_service import (
    EnrolledService,
    create_keys,
    open_enrolled_host,
    open_enrolled_service,
)
from tests.playground.two_logins import CHANGER


@dataclass(frozen=True)
class _Content:
    """What a file holds, and who may change it."""

    content: bytes
    mode: int


class AttackedHost:
    """The host, and what a thief of Keyturn does to it. Each way has a new Keyturn."""

    def __init__(
        self,
        directory: Path,
        host: EnrolledLogins,
        keys: Mapping[str, SshKey],
        passkey: SoftPasskey,
    ) -> None:
        self.host, self.keys, self.passkey = host, keys, passkey
        self._directory, self._count = directory, 0
        number = (host.directory / stray_processes.PID_FILE).read_text().strip()
        # The host has files of its own in /etc and /usr/local.
        inside = Path(f"/proc/{number}/root")
        # Any login can reach the files, as in /etc: they are what must not let it write.
        for place in (host.directory.parent, host.directory, host.directory / "etc"):
            place.chmod(0o711)
        self.temporary = directory / "tmp"
        self.temporary.mkdir()
        directory.chmod(0o711)
        self.temporary.chmod(0o1777)
        self.etc = host.directory / "etc/keyturn"
        self.program = inside / PROGRAM_PATH.lstrip("/")
        self.sudoers = inside / "etc/sudoers.d"
        self._places = [self.etc, self.program.parent, self.sudoers, host.record]
        self._at_first = self._baseline = self.read_state()

    @property
    def _agents(self) -> Path:
        return Path(self.host.host().settings["nginx.agents"])

    def read_state(self) -> Mapping[Path, _Content]:
        """Return everything by which the host can have changed."""
        files = [file for place in self._places for file in place.rglob("*")]
        return {
            file: _Content(file.read_bytes() if file.is_file() else b"", file.stat().st_mode)
            for file in [*files, *self._places, self._agents]
            if file.exists()
        }

    @property
    def is_changed(self) -> bool:
        """Whether the host is another than it was at first, or at the last accept_change()."""
        return self.read_state() != self._baseline

    def accept_change(self) -> None:
        """Take what people have signed and the host has run for its state."""
        self._baseline = self.read_state()

    def reset(self) -> None:
        """Undo everything on the host."""
        for file in sorted(set(self.read_state()) - set(self._at_first), reverse=True):
            shutil.rmtree(file) if file.is_dir() else file.unlink()
        for file, known in self._at_first.items():
            if not file.is_dir():
                file.unlink(missing_ok=True)
                file.write_bytes(known.content)
            file.chmod(known.mode & 0o7777)
        self._baseline = self.read_state()

    @contextlib.contextmanager
    def open_service(self, *, is_enrolled: bool = True) -> Generator[EnrolledService]:
        """Start the Keyturn that is stolen. is_enrolled: what its inventory says of the host."""
        self._count += 1
        place = self._directory / f"service-{self._count}"
        with open_enrolled_service(
            place, self.host, self.keys, is_enrolled=is_enrolled
        ) as service:
            yield service

    def type(self, command: str, *, sent: str = "") -> None:
        """Run a command as the login of Keyturn that changes hosts, over one connection."""
        subprocess.run(
            [*self._ssh("ssh"), "-p", str(self.host.port), self._target, command],
            input=sent,
            capture_output=True,
            text=True,
            check=False,
        )

    def copy(self, program: str, *words: str, sent: str = "") -> None:
        """Run sftp or scp. TARGET in a word is the host."""
        given = [word.replace("TARGET", self._target) for word in words]
        port = ["-P", str(self.host.port)]
        subprocess.run(
            [*self._ssh(program), *port, *given],
            input=sent,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def _target(self) -> str:
        return f"{CHANGER}@{self.host.address}"

    def _ssh(self, program: str) -> Sequence[str]:
        options = {
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "LogLevel": "error",
            "ControlMaster": "auto",
            "ControlPath": str(self._directory / "%C"),
            "ControlPersist": "30",
        }
        said = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return [program, "-F", "none", "-i", str(self.host.directory / CHANGER), *said]

    def send(self, run: Run, signatures: Sequence[str], action: str = "do") -> None:
        """Send a plan to the program of the host by hand, past all that Keyturn checks."""
        assert run.plan
        self.send_texts(run.plan.document, run.plan.sections[0].text, signatures, action)

    def send_texts(
        self, document: str, section: str, signatures: Sequence[str], action: str = "do"
    ) -> None:
        sent = frame_input(action, 1, document, section, signatures)
        self.type(f"sudo -n -- {PROGRAM_PATH}", sent=sent)

    def push(self, service: EnrolledService, run: Run, signatures: Sequence[str]) -> None:
        """Have Keyturn believe that Dora and Olga signed a plan, and send it either way."""
        with service.database.transaction() as tx:
            _forge(tx, run, [*signatures, "", ""])
        service.queue.enqueued.append(run.id)
        # Keyturn's own evidence check may refuse what the thief wrote.
        with contextlib.suppress(Exception):
            service.harness.run_queued_work()
        self.send(run, signatures)


def _forge(tx: Transaction, run: Run, signatures: Sequence[str]) -> None:
    """Write entries with the key of the log, and rows, as if both had signed."""
    first, second = signatures[:2]
    asked = events.RequestSigned(digest=run.digest, signature=first, signing_key="SHA256:x")
    change_log.append_entry(tx, asked, run=run, person="dora")
    signed = events.Approved(digest=run.digest, signature=second, signing_key="SHA256:x")
    change_log.append_entry(tx, signed, run=run, person="olga")
    vote = Decision(run.id, "olga", approves=True, digest=run.digest, decided_at=tx.now)
    runs.add_decision(tx, vote)
    tx.sql.execute(update(tables.decision).values(signature=second))
    tx.sql.execute(update(tables.run).where(tables.run.c.id == run.id).values(state=State.QUEUED))


@contextlib.contextmanager
def open_attacked_host() -> Generator[AttackedHost]:
    """Start the host. Only root may."""
    with tempfile.TemporaryDirectory(prefix="kt-") as directory:
        keys = create_keys(Path(directory))
        passkey = SoftPasskey("sign.example.com")
        signers = [Signer("olga", passkey.public.line)]
        with open_enrolled_host(keys, signers, PAGE) as host:
            yield AttackedHost(Path(directory), host, keys, passkey)
