"""The files by which a host checks people's signatures, and the program that installs them. Pure.

Root installs them there: Keyturn never may, or it could install a program that checks nothing.
docs/enrolled-hosts.md describes the two files in /etc/keyturn.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import ValidationError

from bot.hosts.sudo_rules import format_install_program
from bot.policy import Policy
from connectors import signed_files
from connectors.errors import SetupError
from connectors.inventory import Host
from connectors.run_signed import PROGRAM_PATH, PROGRAM_TEXT
from connectors.script import load_code

_END = "end-of-keyturn-file"


@dataclass(frozen=True)
class Signer:
    """One key of a person whose signatures count."""

    person: str
    public_key: str
    """Type and key, as in authorized_keys, without a comment."""


def build_enrolment(policy: Policy, host: Host, page: str) -> str:
    """Return the shell program that enrols a host with the people of the policy.

    page: the address on which people sign.

    Raises:
        SetupError: The host cannot be enrolled, or too few people have signing keys.
    """
    area = policy.get_area(host.name)
    try:
        Host.model_validate({**host.model_dump(exclude_none=True), "signed": True})
    except ValidationError:
        raise SetupError(
            f"{host.name} cannot be enrolled: it needs a shell, a login for Keyturn that is not "
            "root, and a host_key"
        ) from None
    signers = list_signers(policy)
    able = {one.person for one in signers}
    owners = sorted(able.intersection(area.owners))
    if not owners or len(able) < 2:
        raise SetupError(
            f"nothing could change {host.name} once it is enrolled: two people need signing_keys "
            f"in people.yaml, one of them an owner of {area.title}"
        )
    parts = urlsplit(page)
    floor = format_floor(
        host.name,
        {"owners": owners},
        f"{parts.scheme}://{parts.netloc}",
        needs_verified_user=policy.organisation.verify_user,
        unsigned=host.unsigned,
    )
    return format_enrolment(host, format_signers(signers), floor)


def list_signers(policy: Policy) -> Sequence[Signer]:
    """Return each signing key of each person of the policy."""
    people = policy.organisation.people.values()
    return [Signer(one.id, key.line) for one in people for key in one.signing_keys]


def format_signers(signers: Iterable[Signer]) -> str:
    """Return whose signatures count, in the format ALLOWED SIGNERS of ssh-keygen(1)."""
    return signed_files.format_signers((one.person, one.public_key) for one in signers)


def format_floor(
    host: str,
    groups: Mapping[str, Iterable[str]],
    page_origin: str,
    *,
    needs_verified_user: bool = False,
    unsigned: Iterable[str] = (),
) -> str:
    """Return what a host asks for at least.

    Args:
        host: its name in the inventory.
        groups: people by group; `owners` are those of its area.
        page_origin: where people sign in a browser; "" for nowhere.
        needs_verified_user: whether each device must have asked for a fingerprint or a PIN.
        unsigned: commands that run without signatures.
    """
    lines = ["floor 1", f"host {host}", *([f"origin {page_origin}"] if page_origin else [])]
    lines += ["verify-user"] * needs_verified_user
    lines += [f"group {name} {' '.join(sorted(people))}" for name, people in groups.items()]
    lines += ["# Two people sign each command, one of them an owner.", "signed 2 any"]
    lines += ["signed 1 owners", *(f"unsigned {command}" for command in unsigned)]
    return "".join(f"{line}\n" for line in lines)


def format_enrolment(host: Host, signers: str, floor: str) -> str:
    """Return the shell program by which root enrols a host. It is safe to run again."""
    enrol = load_code("enrol", SIGNERS=signers.rstrip("\n"), FLOOR=floor.rstrip("\n"))
    own = {PROGRAM_PATH: PROGRAM_TEXT, signed_files.SCRIPT.path: signed_files.SCRIPT.file_text}
    put = "".join(f"put {path} <<'{_END}'\n{text}{_END}\n" for path, text in own.items())
    return format_install_program(host.model_copy(update={"signed": True}), f"{enrol}\n{put}")
