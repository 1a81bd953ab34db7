"""The files of an enrolled host that say whose signatures count, and how many of them. No I/O.

`/etc/keyturn/signers` is in the format ALLOWED SIGNERS of ssh-keygen(1); docs/enrolled-hosts.md
describes `/etc/keyturn/floor`. Root installs both once; a plan that people signed may change them.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from connectors.command import Hint, Query, QueryRunner, Setting, Shell
from connectors.inventory import Host, compute_fingerprint
from connectors.script import load_script
from connectors.sudo import SudoRule

SCRIPT = load_script("signed-files", argument_count=0)
# What the policy says, which the service knows. People cannot set it in the inventory.
_WANTED_SIGNERS = Setting("policy.signers", "", pattern=r"[\s\S]*")
_WANTED_OWNERS = Setting("policy.owners", "")
_WANTED_TOUCH = Setting("policy.verify-user", "no", pattern="yes|no")
_HINTS = (Hint("No such file", "the host is not enrolled: root runs `keyturn host-files` there"),)
_SIGNER = re.compile(
    r'(?P<person>[^\s,*?!"]+) namespaces="keyturn-plan" (?P<kind>\S+) (?P<key>AAAA\S+)'
)
# For hosts that are enrolled; there, run-signed alone runs it.
SUDO = (SudoRule(SCRIPT),)
_OWNERS, _VERIFY = "group owners", "verify-user"


@dataclass(frozen=True)
class SignedFiles:
    """The two files."""

    signers: str
    floor: str

    @property
    def people(self) -> frozenset[str]:
        """Everyone who has a key."""
        found = map(_SIGNER.fullmatch, self.signers.splitlines())
        return frozenset(match["person"] for match in found if match)

    @property
    def facts(self) -> Sequence[str]:
        """What the files say of people, a sentence each."""
        facts = [_describe_signer(line) for line in _list_lines(self.signers)]
        for line in _list_lines(self.floor):
            if line.startswith(f"{_OWNERS} "):
                facts += [f"{person} is an owner" for person in line.split()[2:]]
        if _VERIFY in self.floor.splitlines():
            facts.append("each device asks for a fingerprint or a PIN")
        return facts

    def find_lockout(self) -> str:
        """Return what the floor asks for that these signers could never give; "" for nothing."""
        groups: dict[str, set[str]] = {}
        lines = [line.split() for line in _list_lines(self.floor)]
        for words in lines:
            if words[0] == "group":
                groups.setdefault(words[1], set()).update(words[2:])
        for words in lines:
            if words[0] != "signed":
                continue
            able = self.people & groups.get(words[2], set()) if words[2] != "any" else self.people
            if len(able) < int(words[1]):
                who = "people" if words[2] == "any" else f"of the group {words[2]}"
                has = ", ".join(sorted(able)) or "no one"
                return f"it asks for the signatures of {words[1]} {who}, and {has} could sign"
        return ""


@dataclass(frozen=True)
class SignedFilesState:
    """The files of a host, and what the policy says that they should be."""

    current: SignedFiles
    wanted: SignedFiles

    @property
    def surplus(self) -> Sequence[str]:
        """What the host says, and the policy does not."""
        return [fact for fact in self.current.facts if fact not in self.wanted.facts]

    @property
    def missing(self) -> Sequence[str]:
        """What the policy says, and the host does not."""
        return [fact for fact in self.wanted.facts if fact not in self.current.facts]


NOT_ENROLLED = SignedFilesState(SignedFiles("", ""), SignedFiles("", ""))


def name_signers(
    host: Host, keys: Iterable[tuple[str, str]], owners: Iterable[str], *, verify_user: bool
) -> Host:
    """Return a host that knows what the policy says of its files; see read_files().

    Args:
        host: as the inventory has it.
        keys: each key of each person, without a comment.
        owners: of its area.
        verify_user: whether each device must have asked for a fingerprint or a PIN.
    """
    signers = list(keys)
    able = sorted({person for person, _ in signers}.intersection(owners))
    wanted = {
        _WANTED_SIGNERS.name: format_signers(signers),
        _WANTED_OWNERS.name: " ".join(able),
        _WANTED_TOUCH.name: "yes" if verify_user else "no",
    }
    return host.model_copy().add_policy_settings(wanted)


def format_signers(keys: Iterable[tuple[str, str]]) -> str:
    """Return whose signatures count, a line for each key of each person."""
    return "".join(
        f'{person} namespaces="keyturn-plan" {key}\n'
        for person, key in sorted(keys, key=lambda one: one[0])
    )


def read_files(run_query: QueryRunner, host: str) -> SignedFilesState:
    """Read both files, and what the policy says that they should be.

    Returns NOT_ENROLLED for a host that is not `signed` in the inventory.
    """
    signers = run_query(host, Query(_WANTED_SIGNERS, str))
    if not signers:
        return NOT_ENROLLED
    current = SignedFiles(
        run_query(host, query_file("/etc/keyturn/signers")),
        run_query(host, query_file("/etc/keyturn/floor")),
    )
    owners = run_query(host, Query(_WANTED_OWNERS, str))
    verifies = run_query(host, Query(_WANTED_TOUCH, str)) == "yes"
    wanted = SignedFiles(signers, replace_people(current.floor, owners, verifies=verifies))
    return SignedFilesState(current, wanted)


def query_file(path: str) -> Query[str]:
    return Query(Shell(("cat", "--", path), hints=_HINTS), str)


def replace_people(floor: str, owners: str, *, verifies: bool) -> str:
    """Return a floor with what the policy says of people; its other lines are those of root."""
    lines: list[str] = []
    has_owners = False
    for line in floor.splitlines():
        if line == _VERIFY:
            continue
        if line.startswith("group ") and not has_owners:
            lines += [_VERIFY] * verifies
        if line.startswith(f"{_OWNERS} "):
            if not has_owners:
                lines.append(f"{_OWNERS} {owners}")
            has_owners = True
        else:
            lines.append(line)
    if not has_owners:
        lines += [*[_VERIFY] * verifies, f"{_OWNERS} {owners}"]
    return "".join(f"{line}\n" for line in lines)


def write_files(files: SignedFiles) -> Shell:
    """Return the command that replaces both files, if they lock no one out."""
    lines = [f"s {line}" for line in files.signers.splitlines()]
    lines += [f"f {line}" for line in files.floor.splitlines()]
    return Shell((SCRIPT,), "".join(f"{line}\n" for line in lines), root=True)


def _list_lines(text: str) -> Sequence[str]:
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _describe_signer(line: str) -> str:
    match = _SIGNER.fullmatch(line)
    if match is None:
        return f"signers has the line “{line[:60]}”"
    return f"{match['person']} signs with {match['kind']} {compute_fingerprint(match['key'])}"
