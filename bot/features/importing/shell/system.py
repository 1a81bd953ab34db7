"""Commands of a shell that set something of a system: what each does."""

from collections.abc import Callable, Mapping, Sequence

from bot.features.importing.drafts import Draft, Origin, Unclear
from bot.features.importing.kinds import (
    accounts,
    changes,
    firewalls,
    packages,
    switches,
)
from bot.features.importing.shell.files import Carry, Understand, split_options


def _understand_sysctl(rest: Sequence[str]) -> list[Carry] | None:
    split = split_options(rest, "wq")
    if split is None or not split[1] or not all("=" in word for word in split[1]):
        return None
    return [
        lambda draft, origin, each=each: _carry_sysctl(draft, origin, each) for each in split[1]
    ]


def _carry_sysctl(draft: Draft, origin: Origin, setting: str) -> None:
    key, _, value = setting.partition("=")
    changes.carry_sysctl(draft, origin, key, value)


def _understand_apache(part: str, *, enabled: bool) -> Understand:
    def understand(rest: Sequence[str]) -> list[Carry] | None:
        split = split_options(rest, "qf")
        if split is None or not split[1]:
            return None
        force = "f" in split[0] and not enabled
        return [
            lambda draft, origin, each=each: switches.carry_apache_part(
                draft, origin, part, each, enabled=enabled, force=force
            )
            for each in split[1]
        ]

    return understand


def _understand_ufw(rest: Sequence[str]) -> list[Carry] | None:
    rule = firewalls.read_ufw_words(rest[1:]) if rest[:1] == ["allow"] else None
    if rule is None:
        return None
    return [lambda draft, origin: firewalls.carry_ufw_rule(draft, origin, rule)]


def _understand_account(database: str, *, present: bool) -> Understand:
    def understand(rest: Sequence[str]) -> list[Carry] | None:
        options, words = _take_options(rest)
        if words is None or (not present and options):
            return None
        name = words
        return [
            lambda draft, origin: accounts.carry_account(
                draft, origin, database, name, present=present, options=options
            )
        ]

    return understand


def _understand_usermod(rest: Sequence[str]) -> list[Carry] | None:
    """Return what usermod does that adds to groups, or sets one field each by an option."""
    pairs, user = rest[:-1], rest[-1] if rest else ""
    if pairs[:2] == ["-a", "-G"] or (pairs[:1] == ["-G"] and pairs[2:] == ["-a"]):
        pairs = ["-aG", *[one for one in pairs if one not in ("-a", "-G")]]
    if pairs[:2] == ["-G", "-a"]:
        pairs = ["-aG", *pairs[2:]]
    if len(pairs) % 2 or not pairs or user.startswith("-"):
        return None
    meanings: list[Carry] = []
    for option, value in zip(pairs[::2], pairs[1::2], strict=True):
        if option in ("-aG", "-Ga"):
            meanings += [_add_to_group(user, group) for group in value.split(",")]
        elif option in ("-g", *_FIELD_OPTIONS):
            meanings.append(_set_field(user, option, value))
        else:
            return None
    return meanings


def _add_to_group(user: str, group: str) -> Carry:
    return lambda draft, origin: accounts.carry_membership(draft, origin, user, group)


_FIELD_OPTIONS = {option: name for name, (_, option, _) in accounts.ACCOUNT_FIELDS.items()}


def _set_field(user: str, option: str, value: str) -> Carry:
    def carry(draft: Draft, origin: Origin) -> None:
        is_new = draft.makes_account(user)
        if option == "-g":
            if is_new:
                raise Unclear("a step before it adds the user, with a first group of its own")
            accounts.carry_first_group(draft, origin, user, value)
        else:
            field = _FIELD_OPTIONS[option]
            accounts.carry_account_field(draft, origin, user, field, value, is_new=is_new)

    return carry


def _understand_setsebool(rest: Sequence[str]) -> list[Carry] | None:
    persistent, words = rest[:1] == ["-P"], rest[1:] if rest[:1] == ["-P"] else rest
    if len(words) == 2 and "=" not in words[0]:
        words = ["=".join(words)]
    pairs = [word.split("=") for word in words]
    values = {"on": True, "1": True, "true": True, "off": False, "0": False, "false": False}
    if not pairs or not all(len(pair) == 2 and pair[1] in values for pair in pairs):
        return None
    return [
        lambda draft, origin, name=name, value=value: switches.carry_boolean(
            draft, origin, name, wanted=values[value], persistent=persistent
        )
        for name, value in pairs
    ]


def _understand_mark(rest: Sequence[str]) -> list[Carry] | None:
    if len(rest) < 2 or rest[0] not in ("hold", "unhold") or any(word[:1] == "-" for word in rest):
        return None
    held = rest[0] == "hold"
    return [
        lambda draft, origin, each=each: packages.carry_hold(draft, origin, each, held=held)
        for each in rest[1:]
    ]


def _understand_chsh(rest: Sequence[str]) -> list[Carry] | None:
    if len(rest) != 3 or rest[0] not in ("-s", "--shell"):
        return None
    return [_set_field(rest[2], "-s", rest[1])]


def _understand_mount(rest: Sequence[str]) -> list[Carry] | None:
    if len(rest) != 3 or rest[0] != "-o" or not rest[1].startswith("remount,"):
        return None
    options = rest[1].split(",")[1:]
    return [lambda draft, origin: changes.carry_remount(draft, origin, rest[2], options)]


def _understand_named(word: str, carry: Callable[[Draft, Origin, str], None]) -> Understand:
    """Return what understands `hostnamectl set-hostname NAME` and the like."""

    def understand(rest: Sequence[str]) -> list[Carry] | None:
        if len(rest) != 2 or rest[0] != word:
            return None
        return [lambda draft, origin: carry(draft, origin, rest[1])]

    return understand


def _take_options(rest: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the options of useradd and groupadd, and the one name; None if there is more."""
    options: list[str] = []
    words = list(rest)
    while len(words) > 1:
        option = words.pop(0)
        if option in ("-m", "-r", "-M", "-U", "--system", "--create-home"):
            options.append(option)
        elif option in ("-s", "-d", "-c", "-g", "-G", "-u") and len(words) > 1:
            value = words.pop(0)
            if value.startswith("-"):
                return [], None
            options += [option, value]
        else:
            return [], None
    return options, words[0] if words and not words[0].startswith("-") else None


SYSTEM_PROGRAMS: Mapping[str, Understand] = {
    "sysctl": _understand_sysctl,
    "useradd": _understand_account("passwd", present=True),
    "userdel": _understand_account("passwd", present=False),
    "groupadd": _understand_account("group", present=True),
    "usermod": _understand_usermod,
    "chsh": _understand_chsh,
    "apt-mark": _understand_mark,
    "setsebool": _understand_setsebool,
    "mount": _understand_mount,
    "hostnamectl": _understand_named("set-hostname", changes.carry_hostname),
    "timedatectl": _understand_named("set-timezone", changes.carry_timezone),
    **{
        f"a2{verb}{part}": _understand_apache(part, enabled=verb == "en")
        for part in switches.APACHE_PARTS
        for verb in ("en", "dis")
    },
    "ufw": _understand_ufw,
    "groupdel": _understand_account("group", present=False),
}
