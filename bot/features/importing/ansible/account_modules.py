"""Modules of Ansible for users, groups and their keys."""

import re
from collections.abc import Callable, Mapping, Sequence

from bot.features.importing.ansible.given import Given
from bot.features.importing.drafts import Draft, Origin, Unclear, show_marks
from bot.features.importing.kinds import accounts, file_lines


def _carry_user(draft: Draft, origin: Origin, given: Given) -> None:
    name, present = given.take("name", "user"), given.take_presence()
    fields = {field: given.take(field) for field in ("uid", "comment", "home", "shell")}
    fields = {field: value for field, value in fields.items() if value}
    group, groups = given.take("group"), given.take_list("groups")
    append = given.take_flag("append")
    given.refuse_unless("generate_ssh_key", "false")
    has_home = given.take_flag("create_home", "createhome", default=True)
    is_system, whole = given.take_flag("system"), given.take_flag("remove")
    _take_password(draft, given, name if present else "")
    given.refuse_rest()
    if not present:
        options = ["-r"] if whole else []
        accounts.carry_account(draft, origin, "passwd", name, present=False, options=options)
        return
    if groups and not append:
        raise Unclear("it takes the user out of all other groups")
    options = ["-m" if has_home else "-M", *(["-r"] if is_system else [])]
    _carry_present(draft, origin, name, fields, (group, groups), options)


def _carry_present(
    draft: Draft,
    origin: Origin,
    name: str,
    fields: Mapping[str, str],
    membership: tuple[str, Sequence[str]],
    options: Sequence[str],
) -> None:
    """Have a user. membership: the first group, and others. options: of a new one."""
    group, groups = membership
    # A task before may add the user, without what this one says.
    is_new = bool(fields or groups) and draft.makes_account(name)
    if is_new and group:
        raise Unclear("a step before it adds the user, with a first group of its own")
    if not is_new:
        options = [*options, *(["-g", group] if group else [])]
        for field, value in fields.items():
            options += [accounts.ACCOUNT_FIELDS[field][1], value]
        accounts.carry_account(draft, origin, "passwd", name, options=options)
    for field, value in fields.items():
        accounts.carry_account_field(draft, origin, name, field, value, is_new=is_new)
    if group:
        accounts.carry_first_group(draft, origin, name, group)
    for each in groups:
        accounts.carry_membership(draft, origin, name, each)


def _take_password(draft: Draft, given: Given, user: str) -> None:
    """Ask who sets a password, which no page has."""
    given.take("update_password")
    if given.take("password") and user:
        question = f"TODO: Ansible set a password of {draft.text(user)}. Who does, and how?"
        draft.notes.append({"text": question})
        given.notes.append("a password is in no page: the draft asks who sets it")


def _carry_group(draft: Draft, origin: Origin, given: Given) -> None:
    name, present, is_system = given.take("name"), given.take_presence(), given.take_flag("system")
    number = given.take("gid") if present else ""
    given.refuse_rest()
    options = [*(["-r"] if is_system and present else []), *(["-g", number] if number else [])]
    accounts.carry_account(draft, origin, "group", name, present=present, options=options)
    if number:
        accounts.carry_group_number(draft, origin, name, number)


def _carry_key(draft: Draft, origin: Origin, given: Given) -> None:
    user, path, key = given.take("user"), given.take("path"), given.take("key").strip()
    present = given.take_presence()
    manages = given.take_flag("manage_dir", default=True)
    given.refuse_rest()
    if not path:
        raise Unclear(
            f"it is not known where the keys of {show_marks(user)[:40]} are: give `path`"
        )
    if manages:
        raise Unclear("it sets the owner and the mode of the directory too")
    if not re.fullmatch(r"(ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/]+=* [A-Za-z0-9@._-]+", key):
        raise Unclear("its key is not one key with a comment and without options")
    if not present:
        raise Unclear("without this key, someone may be locked out of the host")
    file_lines.carry_line(draft, origin, path, key)


ACCOUNT_MODULES: Mapping[str, Callable[[Draft, Origin, Given], None]] = {
    "user": _carry_user,
    "group": _carry_group,
    "authorized_key": _carry_key,
}
