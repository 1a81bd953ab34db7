"""The program by which an enrolled host checks who signed a plan before it runs a step of it.

It is `connectors/scripts/run-signed.sh`; docs/enrolled-hosts.md describes what it checks.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from connectors.command import Query, Shell
from connectors.script import SCRIPTS_DIRECTORY, load_code
from connectors.sudo import SudoRule

PROGRAM_PATH = f"{SCRIPTS_DIRECTORY}/run-signed"
PROGRAM_TEXT = f"{load_code('run-signed')}\n"
SUDO_RULE = SudoRule(PROGRAM_PATH)
_FILES = (PROGRAM_PATH, "/etc/keyturn/signers", "/etc/keyturn/floor")
_DIGEST = hashlib.sha256(PROGRAM_TEXT.encode()).hexdigest()


def frame_input(
    action: str, step: int, document: str, section: str, signatures: Iterable[str]
) -> str:
    """Return what the program reads.

    Args:
        action: do, undo or report.
        step: its number in the section.
        document: the text that people signed.
        section: the text of the steps on this host.
        signatures: as `ssh-keygen -Y sign` writes them.
    """
    parts = [("a", f"{action} {step}\n"), ("d", document), ("s", section)]
    parts += [("g", signature) for signature in signatures]
    return "".join(
        f"{letter} {line}\n"
        for letter, text in parts
        for line in text.removesuffix("\n").split("\n")
    )


def sign_step(
    command: Shell, step: int, document: str, section: str, signatures: Iterable[str]
) -> Shell:
    """Return the command that has a host run a step of a signed plan; see frame_input()."""
    framed = frame_input("do", step, document, section, signatures)
    return replace(command, argv=("sudo", "-n", "--", PROGRAM_PATH), stdin=framed)


def query_enrolment() -> Query[Sequence[str]]:
    """Query what a host lacks to check signatures: sentences, none if it is enrolled."""
    return Query(Shell(("sha256sum", "--", *_FILES)), parse_enrolment, frozenset({0, 1}))


def parse_enrolment(text: str) -> Sequence[str]:
    """Parse the lines of sha256sum: 64 digits, two characters and the name of each file."""
    found = {line[66:]: line[:64] for line in text.splitlines()}
    missing = [file for file in _FILES if file not in found]
    if missing:
        return [f"it is not enrolled: {', '.join(missing)} cannot be read"]
    if found[PROGRAM_PATH] != _DIGEST:
        return [f"{PROGRAM_PATH} is not that of this version: find out who changed it"]
    return []
