"""What holds for the tasks of a play, and a task of one, whose arguments are filled."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.features.importing.ansible.systems import DEFAULT_SYSTEM, SYSTEMS, System
from bot.features.importing.ansible.template_values import ROLE, Facts
from bot.features.importing.ansible.templates import Scope
from bot.features.importing.ansible.variables import Variables, find_role
from bot.features.importing.drafts import Draft, Origin
from bot.features.importing.pages import Pages
from bot.features.importing.sources import as_list, as_mapping, is_false

LINES = frozenset({"command", "shell", "raw"})
MOST_NESTED = 5
"""How many files may include each other."""
# Keys, or variables, by which a task says who runs it.
WHO = frozenset({"become", "become_user", "sudo", "sudo_user", "remote_user", "ansible_become",
                 "ansible_become_user", "ansible_user"})  # fmt: skip
# Keys of a task that are no module.
KEYWORDS = frozenset(
    """
    name tags register changed_when failed_when become become_user become_method become_flags when
    notify loop loop_control ignore_errors args vars environment delegate_to run_once
    listen no_log check_mode diff retries delay until async poll any_errors_fatal block rescue
    always local_action action ignore_unreachable throttle collections module_defaults connection
    remote_user sudo sudo_user static delegate_facts timeout debugger become_exe port
    """.split()  # noqa: SIM905 - so many names are easier to read this way
)


@dataclass(frozen=True)
class Look:
    """What a task read: whether a path is there, or what a command prints."""

    path: str = ""
    """"" of a command."""
    words: Sequence[str] = ()
    """The command, which root runs or the login."""
    is_quiet: bool = False
    """Whether the task's command printed nothing, and only this one does."""
    root: bool = True
    statuses: Sequence[int] = ()
    """With which the command may end."""
    draft: Draft | None = None
    """The page with the step before it; None if there was none."""
    count: int = 0
    """How many steps that page had."""
    is_first: bool = False
    """Whether nothing that the page does so far changes what was read."""


@dataclass
class Play:
    """What holds for the tasks of a play."""

    file: Path
    pages: Pages
    variables: Variables
    facts: Facts
    values: Mapping[str, Any]
    """What an inventory says of variables, which comes before all else."""
    unknown: dict[str, str]
    """The values that a request has to bring, by their names in the file."""
    notified: dict[str, list[tuple[int, str]]] = field(
        default_factory=dict[str, list[tuple[int, str]]]
    )
    """The conditions under which a handler runs, each with the count of pages when it was added;
    "" for one that no page can know."""
    prompts: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """What a person types where the play begins, by the names of its variables."""
    root: bool = False
    login: str = ""
    """Who runs tasks without `become`, if that is known and not root."""
    says_who: list[int] = field(default_factory=list[int])
    """The lines of tasks that say who runs them."""
    used: set[str] = field(default_factory=set[str])
    """The defaults of the role that are used."""
    assumed: set[str] = field(default_factory=set[str])
    """The variables that were taken as not set."""
    defaults: set[str] = field(default_factory=set[str])
    """The variables that a role, and maybe an inventory, gives a value."""
    registered: dict[str, list[tuple[int, str]]] = field(
        default_factory=dict[str, list[tuple[int, str]]]
    )
    """As `notified`, by the variable that says whether a task changed something."""
    looks: dict[str, Look | None] = field(default_factory=dict[str, Look | None])
    """By the variable that a task registers; None for one that is not known."""
    elsewhere: list[int] = field(default_factory=list[int])
    """The lines of tasks that run where Ansible runs."""
    roles: "list[Play]" = field(default_factory=list["Play"])
    """The roles whose tasks were imported, and whose handlers are at the end."""
    listed: list[tuple[Path | None, str]] = field(default_factory=list[tuple[Path | None, str]])
    """The roles that the play names, or that one depends on, with what is given to them."""
    around: tuple[Path, ...] = ()
    """The files that include this one, the outermost first."""
    included: list[Path] = field(default_factory=list[Path])
    """Every file that was included so far, by any."""
    items: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Those of the loops over files that include this one."""
    common: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What each task has unless it says otherwise."""

    def forget(self, name: str) -> None:
        """Forget what a variable has that another task registers."""
        self.looks[name] = None
        self.registered.pop(name, None)


@dataclass
class Task:
    line: int
    name: str
    key: str
    """The module as the file calls it."""
    module: str
    given: dict[str, Any]
    """The arguments of the module; `_` is a free line."""
    raw: Mapping[str, Any]
    scope: Scope
    conditions: Sequence[str]
    """What has to hold, where the files do not decide it."""


@dataclass(frozen=True)
class After:
    """The steps after which a handler runs."""

    conditions: Sequence[str]
    """When they are needed, as far as that is known."""
    is_all: bool
    """Whether it is known of all of them."""


@dataclass(frozen=True)
class Target:
    """The hosts that drafts are for."""

    system: System = SYSTEMS[DEFAULT_SYSTEM]
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of the inventory: what its files say of variables."""


def list_modules(raw: Mapping[str, Any]) -> list[str]:
    """Return the keys of a task that say what it does: one, unless it is something else."""
    return [key for key in raw if key not in KEYWORDS and not key.startswith("with_")]


def drop_of_dynamic(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a task without who runs it, if that does not hold for what it includes in a run.

    As in _get_parent_attribute of lib/ansible/playbook/task.py; newer ones refuse such a task.
    """
    kinds = {key.rpartition(".")[2] for key in raw}
    is_dynamic = kinds & {"include_tasks", "include_role"} or (
        "include" in kinds and ("loop" in raw or is_false(raw.get("static")))
    )
    return {key: raw[key] for key in raw if key not in WHO} if is_dynamic else raw


def take_line(given: dict[str, Any]) -> str:
    """Return the command line of a task of `LINES`, and take it out of its arguments."""
    line = given.pop("_", given.pop("cmd", ""))
    return str(line or shlex.join(as_list(given.pop("argv", []))))


def as_parts(value: object) -> list[Any]:
    return as_list(value) or [value]


def ask(play: Play, origin: Origin, reason: str, what: str = "") -> None:
    play.pages.ask(origin, reason, what or f"what the task of line {origin.line} did")


def name_item(raw: Mapping[str, Any]) -> str:
    """Return the name of the variable that a loop sets."""
    return str(as_mapping(raw.get("loop_control")).get("loop_var") or "item")


def make_scope(play: Play, raw: Mapping[str, Any], items: Mapping[str, Any]) -> Scope:
    """Return what the templates of a task see, without what a request brings."""
    known, own = play.variables, as_mapping(raw.get("vars"))
    items = {**({"role_path": ROLE} if find_role(play.file) else {}), **play.items, **items}
    return Scope(known.known, play.facts, known.assigned, known.is_open, own, items)


def note_use(play: Play, scope: Scope) -> None:
    play.used |= scope.used
    play.assumed |= scope.assumed
