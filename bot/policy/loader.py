"""Load the policy directory: people, areas, inventory, rules and freezes, all or nothing.

Fault trees are the exception: see Policy.tree_problems.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from bot.model import request_form
from bot.policy import trees as trees_module
from bot.policy.cedar import EntityReference, Rules, RulesError
from bot.policy.freezes import Freeze, FreezeList
from bot.policy.oncall import ROLE_PREFIX, CalendarList, DutyCalendar
from bot.policy.people import Organisation
from bot.policy.policy import Policy
from bot.policy.problem import NoPolicyError, PolicyProblem
from bot.policy.tickets import TicketSystem
from bot.policy.yaml_file import YamlFile
from connectors.inventory import Inventory
from connectors.permissions import find_writer_above

REQUIRED_FILES = ("people.yaml", "areas.yaml", "inventory.yaml", "policy.cedar")
OPTIONAL_FILES = ("freezes.yaml", "oncall.yaml", "tickets.yaml")
POLICY_FILES = (*REQUIRED_FILES, *OPTIONAL_FILES)
# Where one of these is missing, the version is that of earlier releases.
_NEWER_FILES = ("oncall.yaml", "tickets.yaml")
TREE_DIRECTORY = "trees"
Model = TypeVar("Model", bound=BaseModel)
FormerName = tuple[str, str]
"""The kind of a name, `Person` or `Role`, and the name."""
FileStamps = Sequence[tuple[int, int, int] | None]

# Messages for people, by the type of pydantic's error.
_MESSAGES = {
    "sequence_str": "must be a list in brackets, such as [one, another]",
    "extra_forbidden": "is an unknown field: check the spelling",
    "missing": "is missing",
    "dict_type": "must be a mapping of names, each with its own fields below it",
    "too_short": "must name at least one",
    **dict.fromkeys(
        (
            "datetime_parsing",
            "datetime_from_date_parsing",
            "datetime_type",
            "time_parsing",
            "time_type",
        ),
        'must be a date and time such as "2026-12-20 18:00", or with days a time such as "18:00"',
    ),
}
_NAME_FORMAT = "a name of lower-case letters, digits and hyphens, such as web1"
# The format of some fields, by name.
_FIELD_FORMATS = {
    "team": "a team's id, such as T0123ABCD",
    "user": "a user's id, such as U0123ABCD, from their Slack profile, not a name",
    "enterprise": "the id of an Enterprise Grid, such as E0123ABCD",
    "channel": "a channel's id, such as C0123ABCD, from the end of the channel's details",
    "email": "an address, such as dana@example.com",
    "address": "an address that begins with https://",
    "provisioned": "the id of an account, as the page Policy shows it",
    "factors": "the digest that the page /second-factor shows: 32 hex digits",
    **dict.fromkeys(("name", "area", "areas", "tags", "site", "jump", "vantage"), _NAME_FORMAT),
}
_HOST_FIELD_FORMATS = _FIELD_FORMATS | {
    "user": "a user name on the host, such as keyturn",
    "address": "a host name or an IP address, such as lb1.example.com",
}
# What pydantic adds to the path of a value of either type.
_UNION_MEMBERS = ("datetime", "time")

# An edit of several files counts as finished once no file has changed for this long.
_QUIET_SECONDS = 0.1
_MAX_READS = 20
# How long a request waits for a new policy at most: that of a small installation takes less.
MAX_WAIT_SECONDS = 1.0
_MAX_PROBLEMS = 5
# Two edits within one tick of the file system's clock have the same time stamp; after this long,
# a stamp is reliable.
_TICK_NANOSECONDS = 1_000_000_000


class PolicySource(Protocol):
    """Provides the policy that is in force, or raises NoPolicyError."""

    def get_policy(self) -> Policy: ...


class PolicyDirectory:
    """Provides the policy of the current files, and none after an invalid edit.

    Args:
        path: The policy directory.
        on_load: Called with each newly loaded policy.
        sleep: Waits for a number of seconds.
        owners: The numeric ids of users who may own the files; anyone if omitted. Files that other
            users can write are never used.
    """

    def __init__(
        self,
        path: Path,
        on_load: Callable[[Policy], None] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        owners: Collection[int] | None = None,
    ) -> None:
        self.path = path
        self._on_load, self._sleep, self._owners = on_load, sleep, owners
        self._lock = threading.Lock()
        self._reading: Future[_Reading] | None = None
        self._began_at = 0.0
        self._stamp: FileStamps | None = None
        self._is_settled = False
        self._texts: Mapping[str, str] | None = None
        self._policy: Policy | None = None
        # The names that a policy of this process had: one that is gone is no typing error.
        self._former_names: frozenset[FormerName] = frozenset()
        self._problems: Sequence[PolicyProblem] = (PolicyProblem("the policy is not loaded yet"),)

    def get_policy(self) -> Policy:
        """Return the policy of the current files, never a part of one.

        After an edit the files are read in another thread. A request waits for that for a second
        at most, and then goes on with the old policy until the new one stands.

        Raises:
            NoPolicyError: The files are not a valid policy.
        """
        with self._lock:
            if self._reading is None and not self._is_up_to_date():
                self._begin_reading()
            reading = self._reading
        if reading is None:
            return self._require_policy()
        patience = None
        if self._policy is not None:
            patience = max(0.0, self._began_at + MAX_WAIT_SECONDS - time.monotonic())
        done, _ = wait([reading], patience)
        if done:
            self._adopt(reading)
        return self._require_policy()

    def _require_policy(self) -> Policy:
        policy = self._policy
        if policy is None:
            raise NoPolicyError(*self._problems)
        return policy

    def _is_up_to_date(self) -> bool:
        if self._stamp is None or _get_stamps(self.path) != self._stamp:
            return False
        if not self._is_settled:
            self._is_settled = _is_older_than_tick(self._stamp)
            try:
                return _read_files(self.path) == self._texts
            except NoPolicyError:
                return self._texts is None
        return True

    def _begin_reading(self) -> None:
        reader = ThreadPoolExecutor(1, "policy")
        self._began_at = time.monotonic()
        self._reading = reader.submit(self._read, is_first=self._stamp is None)
        reader.shutdown(wait=False)

    def _adopt(self, reading: "Future[_Reading]") -> None:
        """Use what was read, unless another request has done so."""
        with self._lock:
            if self._reading is not reading:
                return
            self._reading, self._is_settled = None, False
            found = reading.result()
            if found.policy is not None:
                self._former_names |= _list_people_and_roles(found.policy)
                if self._on_load is not None:
                    self._on_load(found.policy)
            self._stamp, self._texts, self._problems = found.stamp, found.texts, found.problems
            self._policy = found.policy

    def _read(self, *, is_first: bool) -> "_Reading":
        stamp, texts = _get_stamps(self.path), None
        try:
            check_access(self.path, self._owners)
        except NoPolicyError as error:
            # A chmod does not change the stamps, so the next call checks again.
            return _Reading(None, None, None, error.problems)
        try:
            stamp, texts = _read_consistently(self.path, self._sleep, wait_for_edits=not is_first)
            return _Reading(stamp, texts, _build_policy(texts, self._former_names))
        except NoPolicyError as error:
            return _Reading(stamp, texts, None, error.problems)


@dataclass(frozen=True)
class _Reading:
    """What was read of the files. Without a policy, the problems say why."""

    stamp: FileStamps | None
    texts: Mapping[str, str] | None
    policy: Policy | None
    problems: Sequence[PolicyProblem] = ()


def load_policy(path: Path, **replacements: str) -> Policy:
    """Read and validate all files.

    Args:
        replacements: The new text of a file that is not written yet, by name: `inventory=…`.

    Raises:
        NoPolicyError: The files are not a valid policy, or others can write them. The message
            names the file and the fix. Problems of fault trees are in `tree_problems` of the
            policy instead.
    """
    check_access(path)
    _, texts = _read_consistently(path, time.sleep, wait_for_edits=False)
    return _build_policy(
        {**texts, **{f"{name}.yaml": text for name, text in replacements.items()}}
    )


def check_access(path: Path, owners: Collection[int] | None = None) -> None:
    """Check that no other user can change the policy. Missing files are not an error here.

    Args:
        owners: The numeric ids of users who may own the files; anyone if omitted.

    Raises:
        NoPolicyError: Another user can write a file or a directory above it.
    """
    # A user who can write to the directory of fault trees can add one.
    places = (*(path / name for name in POLICY_FILES), path / TREE_DIRECTORY)
    try:
        problem = find_writer_above(path, owners)
        for place in (*places, *_list_tree_files(path)):
            if not problem and place.exists():
                problem = find_writer_above(place, owners)
    except FileNotFoundError:
        return
    except OSError as error:
        raise NoPolicyError(PolicyProblem(f"cannot be read: {error}", str(path))) from None
    if problem:
        raise NoPolicyError(PolicyProblem(f"{problem}, because it decides who may do what"))


def _get_stamps(path: Path) -> FileStamps:
    stamps: list[tuple[int, int, int] | None] = []
    place = str(path)
    trees = [f"{TREE_DIRECTORY}/{file.name}" for file in _list_tree_files(path)]
    for name in (*POLICY_FILES, *trees):
        try:
            # This runs for every request, and pathlib takes several times as long.
            stat = os.stat(f"{place}/{name}")  # noqa: PTH116 - see above
        except OSError:
            stamps.append(None)
        else:
            stamps.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return stamps


def _list_tree_files(path: Path) -> Sequence[Path]:
    """Return the files of fault trees, by name."""
    return sorted((path / TREE_DIRECTORY).glob("*.yaml"))


def _is_older_than_tick(stamps: FileStamps) -> bool:
    newest = max((one[0] for one in stamps if one), default=0)
    return time.time_ns() - newest > _TICK_NANOSECONDS


def _read_consistently(
    path: Path, sleep: Callable[[float], None], *, wait_for_edits: bool
) -> tuple[FileStamps, Mapping[str, str]]:
    """Return the stamps and texts of all files at one point in time, never amid an edit.

    wait_for_edits: first wait until no file has changed for a while.
    """
    for _ in range(_MAX_READS):
        stamp = _get_stamps(path)
        if wait_for_edits:
            sleep(_QUIET_SECONDS)
        texts = _read_files(path)
        if _get_stamps(path) == stamp and _read_files(path) == texts:
            return stamp, texts
        wait_for_edits = True
    raise NoPolicyError(
        PolicyProblem(f"the files in {path} keep changing: wait until the edits are finished")
    )


def _read_files(path: Path) -> Mapping[str, str]:
    texts = {name: _read_file(path / name) for name in REQUIRED_FILES}
    # The other files are optional, but if they exist they must be readable.
    optional = {
        name: _read_file(path / name) if (path / name).exists() else "" for name in OPTIONAL_FILES
    }
    trees = {f"{TREE_DIRECTORY}/{one.name}": _read_file(one) for one in _list_tree_files(path)}
    return texts | optional | trees


def _read_file(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        missing = f"is missing: a policy directory contains {', '.join(REQUIRED_FILES)}"
        if not file.parent.exists():
            missing += f". Run keyturn init {file.parent} to create one"
        raise NoPolicyError(PolicyProblem(missing, str(file))) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise NoPolicyError(
            PolicyProblem("is not UTF-8: save the file as UTF-8", file.name, line)
        ) from None
    except OSError as error:
        raise NoPolicyError(PolicyProblem(f"cannot be read: {error}", str(file))) from None


def _build_policy(texts: Mapping[str, str], former_names: Collection[FormerName] = ()) -> Policy:
    """Build the policy. former_names: people and roles that an earlier policy had."""
    files = {name: YamlFile(name, text) for name, text in texts.items()}
    organisation = _build_organisation(files["people.yaml"], files["areas.yaml"])
    warnings = [*_list_former_owners(files["areas.yaml"], organisation, former_names)]
    inventory = _validate_model(
        [files["inventory.yaml"]], Inventory, files["inventory.yaml"].parse_data()
    )
    freezes = _build_freezes(files["freezes.yaml"], organisation)
    calendars = _build_calendars(files["oncall.yaml"], organisation)
    try:
        rules = Rules(texts["policy.cedar"])
    except RulesError as error:
        raise NoPolicyError(PolicyProblem(str(error), "policy.cedar", error.line)) from None
    for host in inventory:
        if host.area not in organisation.areas:
            known = ", ".join(sorted(organisation.areas)) or "none"
            message = f"host {host.name}: area {host.area} is not in areas.yaml, which has {known}"
            key_path = ("hosts", host.name, "area")
            raise NoPolicyError(_build_problem([files["inventory.yaml"]], key_path, message))
    tickets = _build_tickets(files["tickets.yaml"], rules)
    warnings += _list_former_references(rules, organisation, inventory, calendars, former_names)
    tree_files = {
        name.removeprefix(f"{TREE_DIRECTORY}/").removesuffix(".yaml"): file
        for name, file in files.items()
        if name.startswith(f"{TREE_DIRECTORY}/")
    }
    # Names count too: a tree is called by its file's.
    written = [texts[name] for name in POLICY_FILES if name not in _NEWER_FILES or texts[name]]
    written += [part for name in tree_files for part in (name, texts[tree_files[name].name])]
    version = hashlib.sha256("\0".join(written).encode()).hexdigest()[:12]
    digests = {
        name: hashlib.sha256(text.encode()).hexdigest()[:12] for name, text in texts.items()
    }
    trees = trees_module.build_trees(tree_files, inventory)
    return Policy(
        organisation.with_people(organisation.list_unbound_people()),
        inventory,
        rules,
        freezes,
        version=version,
        files=digests,
        trees=trees.analyses,
        tree_problems=trees.problems,
        tickets=tickets,
        calendars=calendars,
        warnings=warnings,
        written=organisation,
        person_names={one.id: one.name for one in organisation.people.values()},
    )


def _list_people_and_roles(policy: Policy) -> frozenset[FormerName]:
    organisation = policy.organisation
    people = {("Person", name) for name in organisation.people}
    return frozenset(people | {("Role", name) for name in organisation.held_roles})


def _build_organisation(people: YamlFile, areas: YamlFile) -> Organisation:
    both = _add_names(people.parse_data(), "people", "id") | _add_names(
        areas.parse_data(), "areas", "name"
    )
    return _validate_model([people, areas], Organisation, both)


def _build_freezes(file: YamlFile, organisation: Organisation) -> FreezeList:
    if not file.text:
        return FreezeList()
    freezes = _validate_model([file], FreezeList, file.parse_data())
    for n, freeze in enumerate(freezes.freezes):
        _check_areas(file, ("freezes", n), freeze, organisation)
    return freezes


def _build_tickets(file: YamlFile, rules: Rules) -> TicketSystem | None:
    if file.text:
        return _validate_model([file], TicketSystem, file.parse_data())
    if rules.can_require_ticket:
        raise NoPolicyError(
            PolicyProblem(
                "a rule has @ticket, and tickets.yaml, which names the ticket system, is missing: "
                "add it, or remove @ticket",
                "policy.cedar",
            )
        )
    return None


def _build_calendars(file: YamlFile, organisation: Organisation) -> Mapping[str, DutyCalendar]:
    if not file.text:
        return {}
    named = _add_names(file.parse_data(), "oncall", "name")
    calendars = _validate_model([file], CalendarList, named).oncall
    for name, calendar in calendars.items():
        _check_areas(file, ("oncall", name), calendar, organisation)
    return calendars


def _check_areas(
    file: YamlFile,
    path: Sequence[str | int],
    entry: Freeze | DutyCalendar,
    organisation: Organisation,
) -> None:
    for area in entry.areas:
        if area not in organisation.areas:
            message = f"{entry.name}: area {area} is not in areas.yaml"
            raise NoPolicyError(file.build_problem(message, (*path, "areas")))


def _list_former_owners(
    file: YamlFile, organisation: Organisation, former_names: Collection[FormerName]
) -> Iterator[PolicyProblem]:
    """Yield a warning for each owner who is not in people.yaml: they have no rights any more.

    Raises NoPolicyError for a name that is probably mistyped.
    """
    for area in organisation.areas.values():
        remaining = [owner for owner in area.owners if owner in organisation.people]
        for owner in area.owners:
            if owner in organisation.people:
                continue
            message = f"area {area.name}: owner {owner} is not in people.yaml"
            is_former = _is_former("Person", owner, organisation.people, former_names)
            fix = "remove the name" if remaining else "no owner is left: name another"
            problem = file.build_problem(
                f"{message}: {fix}" if is_former else message, ("areas", area.name, "owners")
            )
            if not is_former:
                raise NoPolicyError(problem)
            yield problem


def _is_former(
    kind: str, name: str, known: Collection[str], former_names: Collection[FormerName]
) -> bool:
    """Return whether an unknown name is one that was removed, and not mistyped."""
    return (kind, name) in former_names or not get_close_matches(name, known, n=1)


def _list_former_references(
    rules: Rules,
    organisation: Organisation,
    inventory: Inventory,
    calendars: Mapping[str, DutyCalendar],
    former_names: Collection[FormerName],
) -> Iterator[PolicyProblem]:
    """Yield a warning for each person and role that a rule names and that no one is any more.

    Such a name in a permit gives no one a right. In a forbid it forbids nothing, so there it has
    to be one that a policy of this process had. Raises NoPolicyError for all others.
    """
    duty_roles = [calendar.role for calendar in calendars.values()]
    known: Mapping[str, Collection[str]] = {
        "Role": {*organisation.roles, *organisation.held_roles, *duty_roles},
        "Person": organisation.people,
        "Area": organisation.areas,
        "Owners": organisation.areas,
        "Host": inventory.hosts,
    }
    for reference in rules.entity_references:
        names = known[reference.kind]
        if reference.name in names:
            continue
        if not _is_former_reference(reference, names, former_names):
            raise NoPolicyError(_describe_unknown_reference(reference, names))
        fix = "list it under roles: there" if reference.kind == "Role" else "remove the name"
        verb = "no one has" if reference.kind == "Role" else "people.yaml no longer has"
        yield PolicyProblem(
            f'rule "{reference.rule}": {verb} the {reference.kind.lower()} "{reference.name}": '
            f"correct it, give it to a person in people.yaml, or {fix}",
            "policy.cedar",
            reference.line,
        )


def _is_former_reference(
    reference: EntityReference, names: Collection[str], former_names: Collection[FormerName]
) -> bool:
    kind, name = reference.kind, reference.name
    if kind not in {"Role", "Person"} or name.startswith(ROLE_PREFIX):
        return False
    if not reference.is_permit:
        return (kind, name) in former_names
    return _is_former(kind, name, names, former_names)


def _describe_unknown_reference(
    reference: EntityReference, names: Collection[str]
) -> PolicyProblem:
    kind = "area" if reference.kind == "Owners" else reference.kind.lower()
    fix = ", or list it under roles: there" if reference.kind == "Role" else ""
    if reference.kind == "Role" and reference.name.startswith(ROLE_PREFIX):
        fix = ", or name the calendar in oncall.yaml"
    message = (
        f'rule "{reference.rule}": {kind} "{reference.name}" is not in {reference.file}, '
        f"which has {', '.join(sorted(names)[:20]) or 'none'}: correct it{fix}"
    )
    return PolicyProblem(message, "policy.cedar", reference.line)


def _add_names(yaml_data: dict[str, Any], key: str, field: str) -> dict[str, Any]:
    """Add its own name to each member, so that the files do not repeat it."""
    members: Any = yaml_data.get(key)
    if isinstance(members, dict):
        named: dict[str, Any] = {
            name: {**member, field: name} if isinstance(member, dict) else member
            for name, member in members.items()  # pyright: ignore[reportUnknownVariableType]
        }
        return {**yaml_data, key: named}
    return yaml_data


def _validate_model(
    files: Sequence[YamlFile], model: type[Model], yaml_data: dict[str, Any]
) -> Model:
    try:
        return model.model_validate(yaml_data)
    except ValidationError as error:
        problems = [
            _build_problem(files, _get_problem_path(problem), _describe_problem(problem))
            for problem in error.errors()
        ]
        # For a value of either type, pydantic returns one error for each type.
        problems = list(dict.fromkeys(problems))[:_MAX_PROBLEMS]
        raise NoPolicyError(*problems) from None


def _get_problem_path(problem: Any) -> Sequence[str | int]:
    """Return the keys that lead to a problem, from pydantic, the check, or its first word."""
    if problem["loc"]:
        return problem["loc"]
    cause: object = problem.get("ctx", {}).get("error")
    path: Sequence[str | int] = getattr(cause, "path", ())
    word = str(cause).partition(":")[0]
    return path or ((word,) if word == "defaults" else ("hosts", word))


def _build_problem(
    files: Sequence[YamlFile], path: Sequence[str | int], message: str
) -> PolicyProblem:
    file = next((file for file in files if file.has_path(path[:1])), files[0])
    field = path[2:3]
    # A field that a host does not have itself comes from the defaults.
    if path[0] == "hosts" and field and not file.has_path(path[:3]):
        default = ("defaults", *field)
        return file.build_problem(message, default if file.has_path(default) else path)
    return file.build_problem(message, path)


def describe_validation_error(error: ValidationError, section: str = "") -> str:
    """Return pydantic's problems in words: `path: problem; path: problem`.

    section: `hosts` if one host was validated by itself.
    """
    messages = dict.fromkeys(_describe_problem(problem, section) for problem in error.errors())
    return "; ".join(list(messages)[:_MAX_PROBLEMS])


def _describe_problem(problem: Any, section: str = "") -> str:
    path: Sequence[str | int] = problem["loc"]
    if path[-1:] and path[-1] in _UNION_MEMBERS:
        path = path[:-1]
    dotted = ".".join(str(part) for part in path)
    message = _MESSAGES.get(problem["type"]) or request_form.describe_invalid_value(problem)
    if problem["type"] == "string_pattern_mismatch":
        names = [part for part in path if isinstance(part, str)]
        in_inventory = (section or names[0]) in {"hosts", "defaults"} if names else False
        formats = _HOST_FIELD_FORMATS if in_inventory else _FIELD_FORMATS
        field_format = formats.get(names[-1] if names else "")
        message = f"must be {field_format}" if field_format else message
    return f"{dotted}: {message}" if dotted else message
