"""The policy directory: loads people, areas, inventory and rules as a whole, or not at all."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from bot.model import request_form
from bot.policy.cedar import EntityReference, Rules, RulesError
from bot.policy.freezes import FreezeList
from bot.policy.people import Organisation
from bot.policy.policy import Policy
from bot.policy.problem import NoPolicyError, PolicyProblem
from bot.policy.yaml_file import YamlFile
from connectors.inventory import Inventory
from connectors.permissions import find_writer, find_writer_above

REQUIRED_FILES = ("people.yaml", "areas.yaml", "inventory.yaml", "policy.cedar")
POLICY_FILES = (*REQUIRED_FILES, "freezes.yaml")
Model = TypeVar("Model", bound=BaseModel)
FileStamps = Sequence[tuple[int, int, int] | None]

# What pydantic says in its own words, by the type of its error, in words for people.
_MESSAGES = {
    "sequence_str": "must be a list in brackets, such as [one, another]",
    "extra_forbidden": "is not known here: is it mistyped?",
    "missing": "is missing",
    "dict_type": "must hold names, each with its own fields below it",
    "too_short": "must name at least one",
    **dict.fromkeys(
        (
            "datetime_parsing",
            "datetime_from_date_parsing",
            "datetime_type",
            "time_parsing",
            "time_type",
        ),
        'must be a moment such as "2026-12-20 18:00", or, with days, a time such as "18:00"',
    ),
}
_NAME_FORMAT = "a name of small letters, digits and hyphens, such as web1"
# What is written in a certain way, by the name of its field.
_FIELD_FORMATS = {
    "team": "a team's id, such as T0123ABCD",
    "user": "a user's id, such as U0123ABCD: it is in their profile in Slack, and no name",
    "enterprise": "the id of an Enterprise Grid, such as E0123ABCD",
    "channel": "a channel's id, such as C0123ABCD: it is at the end of the channel's details",
    "email": "an address, such as dana@example.com",
    "factors": "the digest that the page /second-factor shows: 32 digits from 0 to f",
    **dict.fromkeys(("name", "area", "areas", "tags", "site", "jump"), _NAME_FORMAT),
}
_HOST_FIELD_FORMATS = _FIELD_FORMATS | {
    "user": "a login on the host, such as keyturn",
    "address": "a name or an IP address, such as lb1.example.com",
}
# What pydantic adds to the place of what may be either.
_UNION_MEMBERS = ("datetime", "time")

# An edit of several files has ended once none of them has changed for so long.
_QUIET_SECONDS = 0.1
_MAX_READS = 20
_MAX_PROBLEMS = 5
# Two edits within one tick of the file system's clock look like one: so long ago is safe.
_TICK_NANOSECONDS = 1_000_000_000


class PolicySource(Protocol):
    """Provides the policy that is in force, or raises NoPolicyError."""

    def get_policy(self) -> Policy: ...


class PolicyDirectory:
    """Hands out the policy that the files hold now. After a broken edit there is none.

    pause: waits for so many seconds. owners: who may own the files; left out, anybody. What
    others may write is never used.
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
        self._stamp: FileStamps | None = None
        self._is_settled = False
        self._texts: Mapping[str, str] | None = None
        self._policy: Policy | None = None
        self._problems: Sequence[PolicyProblem] = (PolicyProblem("the policy was never loaded"),)

    def get_policy(self) -> Policy:
        """Return the policy, or raise NoPolicy: half a policy, or an old one, is never used."""
        with self._lock:
            if not self._is_up_to_date():
                self._reload()
            if self._policy is None:
                raise NoPolicyError(*self._problems)
            return self._policy

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

    def _reload(self) -> None:
        first = self._stamp is None
        self._policy, self._texts, self._stamp = None, None, _get_stamps(self.path)
        self._is_settled = False
        try:
            check_access(self.path, self._owners)
        except NoPolicyError as trouble:
            # A chmod leaves the files as they were: look again at once.
            self._problems, self._stamp = trouble.problems, None
            return
        try:
            self._stamp, self._texts = _read_consistently(
                self.path, self._sleep, wait_for_edits=not first
            )
            self._policy = _build_policy(self._texts)
        except NoPolicyError as trouble:
            self._problems = trouble.problems
        else:
            if self._on_load is not None:
                self._on_load(self._policy)


def load_policy(path: Path, **replacements: str) -> Policy:
    """Read and validate everything. Raises NoPolicy saying which file and what to do.

    instead: the text of a file, such as `inventory`, that is not written yet.
    """
    _, texts = _read_consistently(path, time.sleep, wait_for_edits=False)
    return _build_policy(
        {**texts, **{f"{name}.yaml": text for name, text in replacements.items()}}
    )


def check_access(path: Path, owners: Collection[int] | None = None) -> None:
    """Raise NoPolicy if others may change the policy. owners: who may own it; anybody if left out.

    What is missing is for who reads it to say.
    """
    try:
        trouble = find_writer_above(path, owners)
        for name in POLICY_FILES:
            if not trouble and (path / name).exists():
                trouble = find_writer(path / name, owners)
    except FileNotFoundError:
        return
    except OSError as error:
        raise NoPolicyError(PolicyProblem(f"cannot be read: {error}", str(path))) from None
    if trouble:
        raise NoPolicyError(PolicyProblem(f"{trouble}, as it says who may do what"))


def _get_stamps(path: Path) -> FileStamps:
    stamps: list[tuple[int, int, int] | None] = []
    place = str(path)
    for name in POLICY_FILES:
        try:
            # At every request: with a Path it takes several times as long.
            stat = os.stat(f"{place}/{name}")  # noqa: PTH116 - see above
        except OSError:
            stamps.append(None)
        else:
            stamps.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return stamps


def _is_older_than_tick(stamps: FileStamps) -> bool:
    newest = max((one[0] for one in stamps if one), default=0)
    return time.time_ns() - newest > _TICK_NANOSECONDS


def _read_consistently(
    path: Path, sleep: Callable[[float], None], *, wait_for_edits: bool
) -> tuple[FileStamps, Mapping[str, str]]:
    """Read all files as they were at one moment: who edits two is not seen half-way.

    quiet: wait until none has changed for a while, since an edit may be under way.
    """
    for _ in range(_MAX_READS):
        stamp = _get_stamps(path)
        if wait_for_edits:
            sleep(_QUIET_SECONDS)
        texts = _read_files(path)
        if _get_stamps(path) == stamp and _read_files(path) == texts:
            return stamp, texts
        wait_for_edits = True
    said = f"the files in {path} keep changing: they are read when that has ended"
    raise NoPolicyError(PolicyProblem(said))


def _read_files(path: Path) -> Mapping[str, str]:
    texts = {name: _read_file(path / name) for name in REQUIRED_FILES}
    # A directory without freezes has none; any other trouble with the file is trouble.
    freezes = path / "freezes.yaml"
    return texts | {"freezes.yaml": _read_file(freezes) if freezes.exists() else ""}


def _read_file(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        missing = f"is missing: a policy directory holds {', '.join(REQUIRED_FILES)}"
        if not file.parent.exists():
            missing += f". keyturn init {file.parent} writes one to start from"
        raise NoPolicyError(PolicyProblem(missing, str(file))) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise NoPolicyError(
            PolicyProblem("this is not UTF-8: save it as that", file.name, line)
        ) from None
    except OSError as error:
        raise NoPolicyError(PolicyProblem(f"cannot be read: {error}", str(file))) from None


def _build_policy(texts: Mapping[str, str]) -> Policy:
    files = {name: YamlFile(name, text) for name, text in texts.items()}
    household = _build_organisation(files["people.yaml"], files["areas.yaml"])
    inventory = _validate_model(
        [files["inventory.yaml"]], Inventory, files["inventory.yaml"].parse_data()
    )
    freezes = _build_freezes(files["freezes.yaml"], household)
    try:
        rules = Rules(texts["policy.cedar"])
    except RulesError as bad:
        raise NoPolicyError(PolicyProblem(str(bad), "policy.cedar", bad.line)) from None
    for host in inventory:
        if host.area not in household.areas:
            there = ", ".join(sorted(household.areas)) or "none"
            said = f"host {host.name}: area {host.area} is not in areas.yaml, which has {there}"
            place = ("hosts", host.name, "area")
            raise NoPolicyError(_build_problem([files["inventory.yaml"]], place, said))
    for naming in rules.entity_references:
        _check_reference(naming, household, inventory)
    version = hashlib.sha256("\0".join(texts[name] for name in POLICY_FILES).encode()).hexdigest()[
        :12
    ]
    digests = {
        name: hashlib.sha256(text.encode()).hexdigest()[:12] for name, text in texts.items()
    }
    return Policy(household, inventory, rules, freezes, version=version, files=digests)


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
        for area in freeze.areas:
            if area not in organisation.areas:
                said = f"{freeze.name}: there is no area {area} in areas.yaml"
                raise NoPolicyError(file.build_problem(said, ("freezes", n, "areas")))
    return freezes


def _check_reference(
    reference: EntityReference, organisation: Organisation, inventory: Inventory
) -> None:
    """Refuse a rule that speaks of nobody: a forbid with a name mistyped would forbid nothing."""
    known: Mapping[str, Sequence[str]] = {
        "Role": sorted({*organisation.roles, *organisation.held_roles}),
        "Person": sorted(organisation.people),
        "Area": sorted(organisation.areas),
        "Owners": sorted(organisation.areas),
        "Host": sorted(inventory.hosts),
    }
    there = known[reference.kind]
    if reference.name in there:
        return
    what = "area" if reference.kind == "Owners" else reference.kind.lower()
    todo = ", or list it under roles: there" if reference.kind == "Role" else ""
    said = (
        f'rule "{reference.rule}": there is no {what} "{reference.name}" in {reference.file}, but '
        f"{', '.join(there[:20]) or 'none at all'}: correct it{todo}"
    )
    raise NoPolicyError(PolicyProblem(said, "policy.cedar", reference.line))


def _add_names(yaml_data: dict[str, Any], key: str, field: str) -> dict[str, Any]:
    """Give each member its own name, so that files need not say it twice."""
    members: Any = yaml_data.get(key)
    if isinstance(members, dict):
        spread: dict[str, Any] = {
            name: {**member, field: name} if isinstance(member, dict) else member
            for name, member in members.items()  # pyright: ignore[reportUnknownVariableType]
        }
        return {**yaml_data, key: spread}
    return yaml_data


def _validate_model(
    files: Sequence[YamlFile], model: type[Model], yaml_data: dict[str, Any]
) -> Model:
    try:
        return model.model_validate(yaml_data)
    except ValidationError as error:
        problems = [
            _build_problem(files, _get_problem_path(found), _describe_problem(found))
            for found in error.errors()
        ]
        # Of what may be either pydantic says twice why it is neither.
        problems = list(dict.fromkeys(problems))[:_MAX_PROBLEMS]
        raise NoPolicyError(*problems) from None


def _get_problem_path(problem: Any) -> Sequence[str | int]:
    """Return where a problem is: as pydantic says, as the check says, or as its first word."""
    if problem["loc"]:
        return problem["loc"]
    cause: object = problem.get("ctx", {}).get("error")
    where: Sequence[str | int] = getattr(cause, "where", ())
    word = str(cause).partition(":")[0]
    return where or ((word,) if word == "defaults" else ("hosts", word))


def _build_problem(
    files: Sequence[YamlFile], path: Sequence[str | int], message: str
) -> PolicyProblem:
    file = next((file for file in files if file.has_path(path[:1])), files[0])
    field = path[2:3]
    # What a host does not say itself is said by the defaults.
    if path[0] == "hosts" and field and not file.has_path(path[:3]):
        default = ("defaults", *field)
        return file.build_problem(message, default if file.has_path(default) else path)
    return file.build_problem(message, path)


def describe_validation_error(error: ValidationError, section: str = "") -> str:
    """Say what pydantic found, one problem after the other, as `where: what`.

    of: `hosts`, if it is one of them that was read by itself.
    """
    said = dict.fromkeys(_describe_problem(problem, section) for problem in error.errors())
    return "; ".join(list(said)[:_MAX_PROBLEMS])


def _describe_problem(problem: Any, section: str = "") -> str:
    place: Sequence[str | int] = problem["loc"]
    if place[-1:] and place[-1] in _UNION_MEMBERS:
        place = place[:-1]
    where = ".".join(str(part) for part in place)
    what = _MESSAGES.get(problem["type"]) or request_form.describe_invalid_value(problem)
    if problem["type"] == "string_pattern_mismatch":
        names = [part for part in place if isinstance(part, str)]
        of_hosts = (section or names[0]) in {"hosts", "defaults"} if names else False
        ways = _HOST_FIELD_FORMATS if of_hosts else _FIELD_FORMATS
        wanted = ways.get(names[-1] if names else "")
        what = f"must be {wanted}" if wanted else what
    return f"{where}: {what}" if where else what
