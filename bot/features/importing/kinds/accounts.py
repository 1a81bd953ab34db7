"""Changes of users and groups: state, command and undo."""

from collections.abc import Mapping, Sequence

from bot.features.importing.drafts import OWNER, Draft, Origin, Unclear, run_as_root

# The user that steps are by, and the groups by which people become it.
_OF_ROOT = frozenset({"root", "sudo", "wheel", "admin"})


def carry_account(
    draft: Draft,
    origin: Origin,
    database: str,
    name: str,
    *,
    present: bool = True,
    options: Sequence[str] = (),
) -> None:
    """Have a user (database passwd) or a group (database group), or none of the name."""
    is_user = database == "passwd"
    draft.check_value(name, OWNER.pattern, "a plain name")
    if not present and name in _OF_ROOT:
        raise Unclear(f"access to a host may depend on {name}, so Keyturn leaves it alone")
    reading = {"run": ["getent", database, draft.word(name)], "statuses": [0, 2], "as": "text"}
    found = draft.add_reading(f"{'user' if is_user else 'group'}_{name}", reading)
    what, shown = ("user" if is_user else "group"), draft.text(name)
    draft.current.append(f"the {what} {shown} {{{found} == '' ? 'is missing' : 'is there'}}")
    words = [draft.word(each) for each in options]
    add = run_as_root(f"/usr/sbin/{what}add", *words, draft.word(name))
    delete = run_as_root(f"/usr/sbin/{what}del", *([] if present else words), draft.word(name))
    draft.claim_once(f"the {what} {name}", "there" if present else "gone")
    draft.add_step(
        origin,
        {
            "title": f"{'Add' if present else 'Remove'} the {what} {shown}",
            "when": f'{found} {"==" if present else "!="} ""',
            "do": add if present else delete,
            **({"undo": delete} if present else {"no_undo": f"the {what} has to be added again"}),
            "before": f"{{{found} == '' ? 'missing' : {found}}}",
            "after": "there" if present else "missing",
        },
    )


# The fields of getent passwd, the option of usermod, and what is allowed in one.
ACCOUNT_FIELDS: Mapping[str, tuple[int, str, str]] = {
    "uid": (2, "-u", "[0-9]{1,10}"),
    "comment": (4, "-c", "[A-Za-z0-9 .@_-]{1,100}"),
    "home": (5, "-d", "/[A-Za-z0-9_./-]{0,200}"),
    "shell": (6, "-s", "/[A-Za-z0-9_./-]{1,200}"),
}


def carry_account_field(
    draft: Draft, origin: Origin, user: str, field: str, wanted: str, *, is_new: bool = False
) -> None:
    """Have a user who is there already with this number, comment, home or shell.

    is_new: or one that a step before adds without it.
    """
    place, option, pattern = ACCOUNT_FIELDS[field]
    draft.check_value(user, OWNER.pattern, "a plain name")
    if user == "root":
        raise Unclear("access to a host may depend on root, so Keyturn leaves it alone")
    draft.check_value(wanted, pattern, f"a plain {field}")
    reading = {"run": ["getent", "passwd", draft.word(user)], "statuses": [0, 2], "as": "text"}
    found = draft.add_reading(f"user_{user}", reading)
    value = f'{found} == "" ? {draft.expression(wanted)} : split({found}, ":")[{place}]'
    # A comment may be of any words, which no sudo rule can hold.
    state = value if field == "comment" else {"value": value, "pattern": pattern}
    now = draft.add_state(f"{field}_{user}", state)
    _set_field(draft, origin, user, (field, option), now, wanted, found if is_new else "")


def carry_first_group(draft: Draft, origin: Origin, user: str, group: str) -> None:
    """Have a user who is there already with this group as the first one."""
    for name in (user, group):
        draft.check_value(name, OWNER.pattern, "a plain name")
    reading = {"run": ["id", "-gn", draft.word(user)], "statuses": [0, 1], "as": "text"}
    found = draft.add_reading(f"first_group_{user}", reading)
    value = f'{found} == "" ? {draft.expression(group)} : {found}'
    state = {"value": value, "pattern": OWNER.pattern}
    now = draft.add_state(f"group_of_{user}", state)
    _set_field(draft, origin, user, ("first group", "-g"), now, group, "")


def carry_group_number(draft: Draft, origin: Origin, name: str, number: str) -> None:
    """Have a group that is there already with this number."""
    draft.check_value(name, OWNER.pattern, "a plain name")
    draft.check_value(number, "[0-9]{1,10}", "a number of a group")
    reading = {"run": ["getent", "group", draft.word(name)], "statuses": [0, 2], "as": "text"}
    found, wanted = draft.add_reading(f"group_{name}", reading), draft.expression(number)
    value = f'{found} == "" ? {wanted} : split({found}, ":")[2]'
    now = draft.add_state(f"number_of_{name}", {"value": value, "pattern": "[0-9]{1,10}"})
    draft.claim(f"the number of the group {name}", number)
    shown, word = draft.text(number), draft.word(name)
    draft.add_step(
        origin,
        {
            "title": f"Give the group {draft.text(name)} the number {shown}",
            "when": f"{now} != {wanted}",
            "do": run_as_root("/usr/sbin/groupmod", "-g", draft.word(number), word),
            "undo": run_as_root("/usr/sbin/groupmod", "-g", f"{{{now}}}", word),
            "before": f"{{{now}}}",
            "after": shown,
        },
    )


def _set_field(
    draft: Draft,
    origin: Origin,
    user: str,
    names: tuple[str, str],
    now: str,
    wanted: str,
    found: str,
) -> None:
    """Add a step that sets a field by an option of usermod.

    names: of the field, and the option. now: the state that was read. found: the reading that is
    "" before a step adds the user; "" if none does.
    """
    field, option = names
    draft.claim(f"the {field} of {user}", wanted)
    word, shown = draft.word(user), draft.text(wanted)
    is_other = f"{now} != {draft.expression(wanted)}"
    draft.current.append(f"the {field} of {draft.text(user)} is {{{now}}}")
    draft.add_step(
        origin,
        {
            "title": f"Set the {field} of {draft.text(user)} to {shown}",
            "when": f'{found} == "" || {is_other}' if found else is_other,
            "do": run_as_root("/usr/sbin/usermod", option, draft.word(wanted), word),
            **(
                {"no_undo": f"put it back by hand: {{{now}}}"}
                if field == "comment"
                else {"undo": run_as_root("/usr/sbin/usermod", option, f"{{{now}}}", word)}
            ),
            "before": f"{{{now}}}",
            "after": shown,
        },
    )


def carry_membership(draft: Draft, origin: Origin, user: str, group: str) -> None:
    """Have a user in a group, and in the groups that it is in already."""
    for name in (user, group):
        draft.check_value(name, OWNER.pattern, "a plain name")
    who, where, shown = draft.word(user), draft.word(group), draft.text(group)
    reading = {"run": ["id", "-nG", who], "statuses": [0, 1], "as": "text"}
    found = draft.add_reading(f"groups_{user}", reading)
    shown_user = draft.text(user)
    draft.current.append(
        f"the groups of {shown_user} are {{{found} == '' ? 'not known' : {found}}}"
    )
    draft.claim(f"whether {user} is in {group}", "yes")
    draft.add_step(
        origin,
        {
            "title": f"Add {shown_user} to the group {shown}",
            "when": f'!({draft.expression(group)} in split({found}, " "))',
            "do": run_as_root("/usr/sbin/usermod", "-aG", where, who),
            "undo": run_as_root("/usr/bin/gpasswd", "-d", who, where),
            "before": f"not in {shown}",
            "after": f"in {shown}",
        },
    )
