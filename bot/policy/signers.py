"""Who signs plans with which keys, as pages and commands list it. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bot.policy.people import Person
from bot.signing.sshsig import PublicKey

_KIND_LABELS = {
    "sk-ecdsa-sha2-nistp256@openssh.com": "Passkey or security key",
    "sk-ssh-ed25519@openssh.com": "Security key",
}


@dataclass(frozen=True)
class ListedKey:
    """One public key."""

    kind: str
    """As on the line, such as ssh-ed25519."""
    label: str
    """The kind in words."""
    fingerprint: str
    """As `ssh-keygen -l` prints it."""
    comment: str
    line: str
    """Kind and key, as in a `.pub` file."""


@dataclass(frozen=True)
class SigningPerson:
    """A person who has keys to sign plans, or who needs one."""

    person: str
    name: str
    keys: Sequence[ListedKey]
    signs: Sequence[str]
    """What the person has to sign, in words."""

    @property
    def lacks_key(self) -> bool:
        """Whether the person has to sign something, and cannot."""
        return bool(self.signs) and not self.keys


def build_signing_person(person: Person, signs: Sequence[str]) -> SigningPerson:
    """Return how a person signs. signs: what, in words."""
    keys = [_build_listed_key(key) for key in person.signing_keys]
    return SigningPerson(person.id, person.name, keys, signs)


def _build_listed_key(key: PublicKey) -> ListedKey:
    label = _KIND_LABELS.get(key.kind, "Key in a file or an agent")
    return ListedKey(key.kind, label, key.fingerprint, key.comment, key.line)


def list_table_rows(people: Sequence[SigningPerson]) -> Iterator[Sequence[str]]:
    """Yield the rows of a table for a terminal, its heading first."""
    yield ("PERSON", "KIND", "FINGERPRINT", "COMMENT", "SIGNS")
    for one in people:
        signs = "; ".join(one.signs) or "nothing yet"
        if not one.keys:
            yield (one.person, "none yet", "", "", signs)
        for key in one.keys:
            yield (one.person, key.kind, key.fingerprint, key.comment, signs)
