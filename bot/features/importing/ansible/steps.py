"""Steps of a task: typed where its module or its line has a plain meaning, blind, or asked for."""

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from bot.features.importing.ansible.conditions import (
    are_shown,
    note_look,
    note_output,
    show_conditions,
)
from bot.features.importing.ansible.given import Given
from bot.features.importing.ansible.keys import (
    ONE_HOST,
    has_plain_environment,
    is_check,
    list_odd_keys,
    may_fail,
    set_environment,
)
from bot.features.importing.ansible.modules import MODULES, carry_module_steps
from bot.features.importing.ansible.package_modules import LISTS_FOR, NAMES
from bot.features.importing.ansible.play import (
    LINES,
    After,
    Play,
    Task,
    as_parts,
    ask,
    make_scope,
    note_use,
    take_line,
)
from bot.features.importing.ansible.tasks import find_no_change
from bot.features.importing.ansible.variables import list_conditions
from bot.features.importing.drafts import Draft, Kind, Origin, Unclear
from bot.features.importing.kinds import file_changes
from bot.features.importing.shell import lines as shell_lines
from bot.features.importing.shell.reads import only_reads
from bot.features.importing.sources import as_list, as_mapping, is_false, is_list, is_true

_CHANGED = re.compile(r"\s*(?:(\w+)\s+is\s+changed|(\w+)\.changed)\s*")
FURTHER = frozenset(
    ["include", "include_tasks", "import_tasks", "include_role", "import_role", "import_playbook"]
)


# When a step is needed: that no page can know.
UNKNOWN = (0, "")
_NOTIFIED = "whether a task that notifies it was changed"
# Modules whose files belong to who runs them, unless an argument says to whom.
# What may make files, and the argument that says whose they are; "" for none.
_OWNED = {
    **dict.fromkeys(
        ("file", "copy", "template", "get_url", "unarchive", "ini_file", "lineinfile",
         "blockinfile"),
        "owner",
    ),
    "cron": "user",
    "git": "",
    "pip": "",
}  # fmt: skip


def carry_tasks(
    play: Play,
    origin: Origin,
    module: str,
    tasks: Sequence[Task],
    after: "After | None" = None,
) -> None:
    """Carry a task over for each item of its loop.

    after: of a handler, the steps after which it runs.
    """
    for task in tasks:
        task.conditions = [*task.conditions, *_list_asked(task, after)]
    if not tasks or all(map(_changes_nothing, tasks)):
        reason = "it only reads, and its result is used by other tasks"
        note_output(play, tasks)
        play.pages.leave_out(origin, reason if tasks else "it loops over no values")
    elif module in ("assert", "fail") or _ends_play(module, tasks[0]):
        _refuse(play, origin, tasks)
    elif no_change := _find_no_change(module, tasks[0]):
        if module == "stat":
            note_look(play, tasks[0].raw, tasks)
        play.pages.leave_out(origin, no_change)
    elif reason := find_no_meaning(play, module, tasks[0]):
        what = f"what the module {module} did at line {origin.line}"
        notify(play, tasks[0].raw, [UNKNOWN])
        ask(play, origin, reason, what)
    elif after is None and module not in LINES and _is_restart(play, tasks[0]):
        verb = str(tasks[0].given["state"]).removesuffix("ed")
        note = f"Keyturn has it: request `service {verb} HOST {tasks[0].given.get('name')}`"
        play.pages.add_outcome(Kind.TYPED, origin, note)
    else:
        changed = after.conditions if after else _take_changed(play, tasks)
        _carry_meaning(play, origin, module, tasks, changed)


def _list_asked(task: Task, after: After | None) -> list[str]:
    """Return what is asked for a task beside its own conditions."""
    asked = [_NOTIFIED] if after and not after.is_all else []
    return [*asked, ONE_HOST] if is_true(task.raw.get("run_once")) else asked


def _find_no_change(module: str, task: Task) -> str:
    if is_check(task.raw):
        return "it changes nothing on the host, since it runs in check mode"
    if module == "meta" and task.given.get("_") == "flush_handlers":
        return "handlers are at the end of their page, also those that ran here"
    return find_no_change(module, task.given)


def _carry_meaning(
    play: Play, origin: Origin, module: str, tasks: Sequence[Task], changed: Sequence[str]
) -> None:
    if module in LINES:
        for task in tasks:
            _carry_code(play, origin, task, changed)
    else:
        _carry_typed(play, origin, module, tasks, changed)


def _ends_play(module: str, task: Task) -> bool:
    return module == "meta" and str(task.given.get("_", "")).startswith("end_")


def _refuse(play: Play, origin: Origin, tasks: Sequence[Task]) -> None:
    """Ask when the request is refused, where Ansible stopped, unless what it asserts holds."""
    may_stop = [one for one in tasks if not _holds(play, one)]
    if not may_stop:
        play.pages.leave_out(origin, "it changes nothing; what it asserts holds with these values")
        return
    task = may_stop[0]
    asked = _describe_condition(task.raw) or "each time"
    if that := _list_asserted(task):
        asked += f", unless {_describe_condition({'when': that})}"
    if not task.conditions and (not that or task.scope.judge(that)[0] is not None):
        asked = f"on all hosts, with the values that the files give: {asked}"
    because = str(task.given.get("fail_msg") or task.given.get("msg") or origin.title)
    question = f"TODO: Ansible stopped here: {asked}. What that was read shows it?"
    play.pages.refusals.append({"when": question[:1000], "because": because[:1000]})
    play.pages.leave_out(origin, "it changes nothing; the draft asks at `refuse` when it stops")


def _list_asserted(task: Task) -> list[str]:
    """Return what a task asserts."""
    return list_conditions({"when": as_mapping(task.raw.get(task.key)).get("that", [])})


def _holds(play: Play, task: Task) -> bool:
    """Return whether what a task asserts holds, by what the files say."""
    asserted = _list_asserted(task)
    holds = bool(asserted) and task.scope.judge(asserted) == (None, [])
    if holds:
        note_use(play, task.scope)
    return holds


def find_no_meaning(play: Play, module: str, task: Task) -> str:
    """Return why a task has no plain meaning; "" for one that may have."""
    raw = task.raw
    if module in FURTHER:
        return "it includes another file: import that one too"
    if "delegate_to" in raw or "local_action" in raw:
        return "it runs on another host"
    if module not in LINES and module not in MODULES:
        return f"the module {module} has no plain meaning here"
    if module in MODULES and (odd := set(list_odd_keys(task)) - may_fail(raw)):
        return f"it has `{min(odd)}`, which is not read"
    if "never" in _list_tags(raw):
        return "its tag `never` has Ansible run it only when it is asked for"
    return _find_other_user(play, module, task)


def _list_tags(raw: Mapping[str, Any]) -> list[str]:
    tags = raw.get("tags")
    return [*map(str, as_list(tags))] or [one.strip() for one in str(tags).split(",")]


def _find_other_user(play: Play, module: str, task: Task) -> str:
    """Return why a step, which is by root, would do something else; "" if it would not."""
    raw = task.raw
    own = {**play.variables.known, **as_mapping(raw.get("vars"))}
    named = (own.get("ansible_become_user"), raw.get("become_user"), raw.get("sudo_user"), "root")
    user = str(next(filter(None, named)))
    if re.search(r"(^|\s)(-u|--user)", str(raw.get("become_flags", ""))):
        return "its `become_flags` name another user"
    if user != "root":
        return f"it runs as {user}, and a step of Keyturn as its login or as root"
    is_root = is_true(raw.get("become", raw.get("sudo", play.root)))
    owner = _OWNED.get(module)
    if not play.login or is_root or owner is None or owner in task.given:
        return ""
    if module in ("lineinfile", "blockinfile") and not is_true(task.given.get("create")):
        return ""
    advice = f": name the {owner}" if owner else ""
    return f"it runs as {play.login}, who would own the file{advice}"


def _is_restart(play: Play, task: Task) -> bool:
    """Return whether a task is a handler in a file of its own, which restarts a service."""
    return "handlers" in play.file.parts and task.given.get("state") in ("restarted", "reloaded")


def _changes_nothing(task: Task) -> bool:
    """Return whether a task says that it changes nothing, and its command is known to read."""
    code = str(task.given.get("_", task.given.get("cmd", "")))
    is_read = str(task.raw.get("changed_when", "")).lower() in ("false", "no")
    return is_read and task.module in LINES and only_reads(code)


def _carry_typed(
    play: Play, origin: Origin, module: str, tasks: Sequence[Task], changed: Sequence[str]
) -> None:
    conditions: list[tuple[int, str]] = []
    page, question = len(play.pages.drafts), _join_conditions(tasks)
    questions, said = set[str](), dict[str, None]()
    is_package = module in ("apt", "yum", "dnf", "package")

    def carry(draft: Draft, task: Task) -> None:
        def read(name: str) -> str:
            return given.read_file("templates", name)

        def fill(text: str, *, lstrip: bool) -> str:
            filled = task.scope.fill_file(text, read, lstrip=lstrip)
            note_use(play, task.scope)
            return filled

        if changed:
            _stay_on(play, page)
        is_asked = _NOTIFIED in question
        shown, others = show_conditions(play, draft, tasks)
        asked, all_shown = _join_parts(others), [] if others else shown
        given = Given(
            play.file, task.given, fill, play.facts, changed, is_asked=is_asked, shown=all_shown
        )
        questions.add(asked)
        found = draft.ask_condition(
            asked, lambda: carry_module_steps(module, draft, origin, given), changed, shown
        )
        # Its items may be on several pages.
        conditions.extend((len(play.pages.drafts), one) for one in found)
        said.update(dict.fromkeys(given.notes))

    try:
        for task in _split_packages(play, module, tasks) if is_package else tasks:
            kind = None if is_package and task.given.get("update_cache") is True else is_package
            play.pages.carry(origin, lambda draft, task=task: carry(draft, task), is_package=kind)
    except Unclear as unclear:
        ask(play, origin, str(unclear), f"what the module {module} did at line {origin.line}")
        notify(play, tasks[0].raw, [UNKNOWN])
        return
    notes = [f"the draft asks at this step for the condition {one}" for one in questions if one]
    if may_fail(tasks[0].raw) & set(list_odd_keys(tasks[0])):
        notes.append("Ansible went on or tried again if it failed; Keyturn stops there")
    notes += said
    play.pages.add_outcome(Kind.TYPED, origin, "; ".join(notes))
    notify(play, tasks[0].raw, conditions)


def _stay_on(play: Play, page: int) -> None:
    """Refuse to follow the steps of another page, whose readings this one does not have."""
    if len(play.pages.drafts) != page:
        raise Unclear("the steps that it follows are on the page before this one")


def _take_changed(play: Play, tasks: Sequence[Task]) -> list[str]:
    """Return when the tasks change something after which these run, if that is all they ask.

    Those conditions of the tasks are then known.
    """
    known: list[str] = []
    for name in {one[1] or one[2] for task in tasks for each in task.conditions
                 if (one := _CHANGED.fullmatch(each))}:  # fmt: skip
        found = play.registered.get(name, [])
        page = len(play.pages.drafts)
        if known or not found or not all(at == page and one for at, one in found):
            return []
        known = [one for _, one in found]
    if known:
        for task in tasks:
            task.conditions = [one for one in task.conditions if not _CHANGED.fullmatch(one)]
    return known


def _split_packages(play: Play, module: str, tasks: Sequence[Task]) -> Iterator[Task]:
    """Yield a task for each package, since each has an undo of its own.

    On Debian, before these one that reads the lists of packages, if they ask for it.
    """
    tasks = [replace(task, given=dict(task.given)) for task in tasks]
    if module == "apt" or (module == "package" and play.facts["pkg_mgr"] == "apt"):
        yield from _split_lists(tasks)
        tasks = [task for task in tasks if task.given]
    for task in tasks:
        key = next((key for key in NAMES if key in task.given), "")
        for name in _list_names(task.given):
            yield replace(task, given={**task.given, key: name} if key else task.given)


def _split_lists(tasks: Sequence[Task]) -> Iterator[Task]:
    """Take what tasks say of lists of packages out of them, and yield one task for it."""
    ages = list[str]()
    for task in tasks:
        age = str(task.given.pop("cache_valid_time", 0))
        if is_true(task.given.pop("update_cache", task.given.pop("update-cache", False))) or (
            age != "0"
        ):
            ages.append(age)
    if not ages:
        return
    needs = [task.given for task in tasks]
    given: dict[str, Any] = {"update_cache": True, "cache_valid_time": ages[0]}
    if all(one.keys() & NAMES and str(one.get("state", "present")) == "present" for one in needs):
        given[LISTS_FOR] = [name for one in needs for name in _list_names(one)]
    yield replace(tasks[0], given=given)


def _list_names(given: Mapping[str, Any]) -> list[str]:
    """Return the packages that a task names."""
    names = next((given[key] for key in NAMES if key in given), None) or ""
    return [
        str(one).strip() for one in (as_list(names) if is_list(names) else str(names).split(","))
    ]


def _join_conditions(tasks: Sequence[Task]) -> str:
    """Return what has to hold for a step, as far as the files do not decide it."""
    return _join_parts([one for task in tasks for one in task.conditions])


def _join_parts(conditions: Sequence[str]) -> str:
    parts = [*dict.fromkeys(conditions)]
    return _describe_condition({"when": parts}) if parts else ""


def _describe_condition(raw: Mapping[str, Any]) -> str:
    if "when" not in raw:
        return ""
    when = raw["when"]
    shown = " and ".join(map(str, as_parts(when)))
    return " ".join(shown.split())[:300]


def notify(play: Play, raw: Mapping[str, Any], conditions: Sequence[tuple[int, str]]) -> None:
    """Keep when the steps of a task are needed, for what it notifies and registers.

    One that says that it changes nothing notifies no one, whatever it does.
    """
    if "changed_when" in raw:
        if is_false(raw["changed_when"]):
            return
        conditions = [UNKNOWN]
    if "register" in raw:
        play.registered.setdefault(str(raw["register"]), []).extend(conditions)
    for name in filter(None, as_parts(raw.get("notify"))):
        known = _fill_name(play, raw, str(name))
        # One that only a run knows may be that of any handler.
        found = conditions if known else [UNKNOWN]
        play.notified.setdefault(known, []).extend(found)


def list_notified(play: Play, raw: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return when the steps are needed that notify a handler, each with its page."""
    given = [raw.get("name") or "", *as_parts(raw.get("listen") or [])]
    names = dict.fromkeys(["", *(_fill_name(play, raw, str(one)) for one in given)])
    return [one for each in names for one in play.notified.get(each, [])]


def _fill_name(play: Play, raw: Mapping[str, Any], name: str) -> str:
    """Return the name of a handler as it is compared; "" for one that only a run knows."""
    with suppress(Unclear):
        return str(make_scope(play, raw, {}).evaluate(name)).lower()
    return ""


def _carry_code(play: Play, origin: Origin, task: Task, changed: Sequence[str]) -> None:
    given = dict(task.given)
    code = take_line(given)
    root = is_true(task.raw.get("become", play.root))
    if "register" in task.raw and only_reads(code):
        note_output(play, [task])
        play.pages.leave_out(origin, "it only reads, and its result is used by other tasks")
        return
    notify(play, task.raw, [UNKNOWN])
    path = str(given.pop("chdir", ""))
    # Ansible looks for them in the directory where it runs the line.
    names = [str(given.pop(key, "")) for key in ("creates", "removes")]
    creates, removes = (name and posixpath.join(path, name) for name in names)
    given.pop("warn", None)
    shell = posixpath.basename(str(given.pop("executable", "")))
    if given or not code:
        ask(play, origin, "its arguments are not read", f"the line {code[:200]}")
        return
    problems, exports = _list_problems(task, code)
    note_use(play, task.scope)
    if task.module == "command" and shell_lines.has_signs(code):
        # Ansible ran it without a shell.
        with suppress(ValueError):
            code = shlex.join(shlex.split(code))
    code = f"cd {shlex.quote(path)} && {code}" if path else code
    code = f"{exports}{code}"
    is_shown = are_shown(play, task.conditions) and not shell_lines.has_meaning(code)
    if creates or removes or changed or (is_shown and not problems):
        guard = _Guard(creates, removes, task, changed)
        problems += shell_lines.list_shell_problems(shell)
        _carry_guarded(play, origin, code, guard, problems, root=root)
        return
    condition = _join_conditions([task])
    play.pages.carry_code(
        origin, code, root=root, problems=problems, shell=shell, condition=condition
    )


def _list_problems(task: Task, code: str) -> tuple[list[str], str]:
    """Return what a person has to change in lines, and those that give them their environment."""
    keys, exports = list_odd_keys(task), ""
    if "environment" in keys:
        with suppress(Unclear):
            is_alone = shell_lines.has_meaning(code, alone=True)
            exports = "" if is_alone and has_plain_environment(task) else set_environment(task)
            keys.remove("environment")
    return [f"Ansible had `{key}` for it" for key in keys], exports


@dataclass(frozen=True)
class _Guard:
    """What shows whether a line is needed, and what else Ansible asked."""

    creates: str
    """The file that must not be there; "" if there is none."""
    removes: str
    """The file that has to be there; "" if there is none."""
    task: Task
    changed: Sequence[str]
    """The steps of which one has to be needed."""


def _carry_guarded(
    play: Play, origin: Origin, code: str, guard: _Guard, problems: Sequence[str], *, root: bool
) -> None:
    """Carry a line over that runs where a file, or a step before it, shows that it is needed."""

    page = len(play.pages.drafts)

    def carry(draft: Draft) -> None:
        if guard.changed:
            _stay_on(play, page)
        shell_lines.carry_blind(draft, origin, code, root=root, problems=problems)
        _, _, step = draft.steps.pop()
        conditions, others = show_conditions(play, draft, [guard.task])
        if not (has_file or guard.changed or conditions):
            raise Unclear("what it asks for was read for the page before this one")
        step |= _find_need(draft, guard, conditions)
        comment = f"Lines of a shell: only {shown} whether they ran."
        if not (has_file or guard.changed):
            conditions = []
        draft.ask_condition(
            _join_parts(others),
            lambda: draft.add_step(origin, step, comment),
            guard.changed,
            conditions,
        )

    has_file = bool(guard.creates or guard.removes)
    shown = "a file shows" if has_file else "what was read shows"
    shown = "the steps before it show" if guard.changed and not has_file else shown
    try:
        play.pages.carry(origin, carry)
    except Unclear as unclear:
        ask(play, origin, str(unclear), f"the line {code[:200]}")
        return
    kind = Kind.BLIND if problems else Kind.TYPED
    why = "the file that it creates or removes shows it" if has_file else f"{shown} it"
    play.pages.add_outcome(kind, origin, f"only {why}")


def _find_need(draft: Draft, guard: _Guard, shown: Sequence[str]) -> dict[str, str]:
    """Return the parts of a step that say when a line is needed, and what it changes.

    shown: the conditions that the page reads.
    """
    if not (guard.creates or guard.removes or guard.changed):
        return {
            "when": " && ".join(shown),
            "no_undo": "only what they need was read, and not what these lines did",
        }
    if not guard.creates and not guard.removes:
        return {
            "when": draft.join_any(guard.changed),
            "no_undo": "it follows the steps before it: do it again after their undo",
        }
    conditions = list[str]()
    for path, sign, wanted in ((guard.creates, "==", "a file"), (guard.removes, "!=", "nothing")):
        if path:
            found, _, _ = file_changes.look_for(draft, path)
            draft.claim(path, wanted)
            conditions.append(f'{found} {sign} ""')
    there = draft.text(guard.creates or guard.removes)
    return {
        "when": " && ".join(conditions),
        "before": "no such file" if guard.creates else f"{there} is there",
        "after": f"{there} is there" if guard.creates else f"{there} is gone",
        "no_undo": "only the file shows that these lines ran, and not what else they did",
    }
