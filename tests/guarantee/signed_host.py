"""A host that checks signatures: its directories, people's keys, and the plans that they sign."""

import base64
import hashlib
import os
import shutil
import subprocess
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bot.signing.sshsig import PLAN_NAMESPACE
from connectors.run_signed import PROGRAM_TEXT, frame_input
from tests.bot.signing.soft_passkey import SoftPasskey
from tests.bot.signing.ssh_key import SshKey

PAGE = "https://sign.example.com"
HOST = "lb1"
TOUCHED, VERIFIED = 1, 4
DAY = 86_400


def armour(blob: bytes, width: int = 70) -> str:
    """Return a signature as ssh-keygen writes it."""
    lines = "\n".join(textwrap.wrap(base64.b64encode(blob).decode(), width))
    return f"-----BEGIN SSH SIGNATURE-----\n{lines}\n-----END SSH SIGNATURE-----\n"


@dataclass(frozen=True)
class Step:
    """One step of a plan. It and its undo append a line to a file of the host."""

    words: Sequence[str]
    stdin: str = ""
    undo: Sequence[str] = ()
    undo_stdin: str = ""

    @property
    def text(self) -> str:
        lines = [("step", "Write a line")]
        lines += [("do", word) for word in self.words]
        lines += [("in", line) for line in self.stdin.split("\n") if self.stdin]
        lines += [("deadline", "10")]
        lines += [("undo", word) for word in self.undo]
        lines += [("undo-in", line) for line in self.undo_stdin.split("\n") if self.undo_stdin]
        lines += [("undo-deadline", "10")] if self.undo else [("no-undo", "it stays")]
        return "".join(f"{key} {text}\n" if text else f"{key}\n" for key, text in lines)


@dataclass(frozen=True)
class Outcome:
    """What the program answered."""

    status: int
    out: bytes
    error: str


class SignedHost:
    """A host in a directory of its own. People: Dora and Olga, whom it knows, and Eve."""

    def __init__(self, directory: Path, shell: Sequence[str] = ("sh",)) -> None:
        self.root, self.shell = directory / "host", shell
        self.record = self.root / "var/lib/keyturn-signed"
        self.changed = self.root / "changed"
        for each in ("etc/keyturn", "etc/ssh", "var/lib/keyturn-signed"):
            (self.root / each).mkdir(parents=True)
        self.record.chmod(0o700)
        self.keys = {name: SshKey.create(directory, name=name) for name in ("dora", "olga", "eve")}
        self.passkey = SoftPasskey("sign.example.com")
        own = SshKey.create(self.root / "etc/ssh", name="ssh_host_ed25519_key")
        self.fingerprint = own.fingerprint
        self.signers, self.floor = (
            self.root / "etc/keyturn/signers",
            self.root / "etc/keyturn/floor",
        )
        self.program = directory / "run-signed"
        # Programs of this host alone. Of busybox, not only the shell differs from others.
        self.programs = directory / "programs"
        self.programs.mkdir()
        if shell[0] == "busybox":
            (self.programs / "awk").symlink_to(shutil.which("busybox") or "")
        self.reset()

    def reset(self) -> None:
        """Write the files of the host as they were at first, and forget what ran."""
        self.install()
        shutil.rmtree(self.floor.parent)
        self.floor.parent.mkdir(mode=0o755)
        self.write_signers()
        self.write_floor()
        subprocess.run(["umount", "-q", self.record], check=False, capture_output=True)
        subprocess.run(["rm", "-rf", self.record, self.changed], check=True)
        self.record.mkdir(mode=0o700)
        (self.record / "since").write_text(f"{int(time.time()) - DAY}\n")

    def install(self, replaced: Mapping[str, str] | None = None) -> None:
        """Write the program; replaced: text of it that occurs once, and what stands there."""
        text = PROGRAM_TEXT
        own = {"\nroot=\n": f"\nroot={self.root}\n", "\nPATH=": f"\nPATH={self.programs}:"}
        for old, new in (own | dict(replaced or {})).items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        self.program.write_text(text)

    def write_signers(self, **options: str) -> None:
        """Write whose keys count; options: further options of a person's key."""
        people = {name: self.keys[name].line for name in ("dora", "olga")}
        people["stan"] = self.passkey.public.line
        self.signers.write_text(
            "".join(
                f'{name} namespaces="{PLAN_NAMESPACE}"{options.get(name, "")} {line}\n'
                for name, line in people.items()
            )
        )

    def write_floor(self, *more: str) -> None:
        lines = ("floor 1", f"host {HOST}", f"origin {PAGE}", "skew 60", "group owners olga stan")
        lines += ("signed 2 any", "signed 1 owners", f"never {self.forbidden_word}", *more)
        self.floor.write_text("\n".join(lines) + "\n")

    @property
    def forbidden_word(self) -> str:
        return "cp"

    def make_step(self, line: str = "changed") -> Step:
        words = ("tee", "-a", str(self.changed))
        return Step(words, f"{line}\n", words, f"{line} undone\n")

    def make_section(self, *steps: Step) -> str:
        return "keyturn-section 1\n" + "".join(step.text for step in steps or (self.make_step(),))

    def make_document(self, section: str, **changed: str) -> str:
        now = int(time.time())
        facts = {
            "keyturn-plan": "1",
            "installation": "Example",
            "run": "7",
            "requested-by": "dora",
            "reason": "a customer called",
            "not-before": str(now - 5),
            "expires": str(now + 600),
            "nonce": os.urandom(16).hex(),
            "host": f"{HOST} {hash_text(section)} {self.fingerprint}",
        }
        named = {key.replace("_", "-"): value for key, value in changed.items()}
        return "".join(f"{key} {value}\n" for key, value in (facts | named).items())

    def sign_with_passkey(self, document: str, *, flags: int = TOUCHED, origin: str = PAGE) -> str:
        return self.passkey.sign(document.encode(), flags=flags, origin=origin)

    def sign(self, document: str, *people: str) -> list[str]:
        return [self.keys[name].sign(document.encode()) for name in people or ("dora", "olga")]

    def run(
        self,
        document: str,
        section: str,
        signatures: Sequence[str],
        *,
        action: str = "do",
        step: int = 1,
    ) -> Outcome:
        return self.send(frame_input(action, step, document, section, signatures).encode())

    def send(self, sent: bytes, **environment: str) -> Outcome:
        process = self.start(**environment)
        out, error = process.communicate(sent, 60)
        return Outcome(process.returncode, out, error.decode(errors="replace"))

    def start(self, **environment: str) -> "subprocess.Popen[bytes]":
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*self.shell, self.program],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=os.environ | environment,
        )

    @property
    def changes(self) -> int:
        """How often a step has changed the host."""
        return self.changed.read_text().count("\n") if self.changed.exists() else 0


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
