"""The policy directory: loads people, areas, inventory and rules as a whole, or not at all."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from bot.model import request_form
from bot.policy.cedar import Naming, Rules, RulesError
from bot.policy.freezes import Freezes
from bot.policy.people import Household
from bot.policy.policy import Policy
from bot.policy.problem import NoPolicy, Problem
from bot.policy.yaml_file import YamlFile
from connectors.inventory import Inventory
from connectors.permissions import find_writer, find_writer_above

NEEDED = ("people.yaml", "areas.yaml", "inventory.yaml", "policy.cedar")
FILES = (*NEEDED, "freezes.yaml")
Model = TypeVar("Model", bound=BaseModel)
Stamp = Sequence[tuple[int, int, int] | None]

# What pydantic says in its own words, by the type of its error, in words for people.
_PLAINLY = {
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
_A_NAME = "a name of small letters, digits and hyphens, such as web1"
# What is written in a certain way, by the name of its field.
_WRITTEN = {
    "team": "a team's id, such as T0123ABCD",
    "user": "a user's id, such as U0123ABCD: it is in their profile in Slack, and no name",
    "enterprise": "the id of an Enterprise Grid, such as E0123ABCD",
    "channel": "a channel's id, such as C0123ABCD: it is at the end of the channel's details",
    "email": "an address, such as dana@example.com",
    "factors": "the digest that the page /second-factor shows: 32 digits from 0 to f",
    **dict.fromkeys(("name", "area", "areas", "tags", "site", "jump"), _A_NAME),
}
_WRITTEN_OF_HOSTS = _WRITTEN | {
    "user": "a login on the host, such as keyturn",
    "address": "a name or an IP address, such as lb1.example.com",
}
# What pydantic adds to the place of what may be either.
_EITHER = ("datetime", "time")

# An edit of several files has ended once none of them has changed for so long.
_QUIET_SECONDS = 0.1
_MOST_TRIES = 20
_MOST_PROBLEMS = 5
# Two edits within one tick of the file system's clock look like one: so long ago is safe.
_TICK_NANOSECONDS = 1_000_000_000


class PolicyDirectory:
    """Hands out the policy that the files hold now. After a broken edit there is none.

    pause: waits for so many seconds. owners: who may own the files; left out, anybody. What
    others may write is never used.
    """

    def __init__(
        self,
        path: Path,
        on_load: Callable[[Policy], None] | None = None,
        pause: Callable[[float], None] = time.sleep,
        owners: Collection[int] | None = None,
    ) -> None:
        self.path = path
        self._on_load, self._pause, self._owners = on_load, pause, owners
        self._lock = threading.Lock()
        self._stamp: Stamp | None = None
        self._settled = False
        self._texts: Mapping[str, str] | None = None
        self._policy: Policy | None = None
        self._problems: Sequence[Problem] = (Problem("the policy was never loaded"),)

    def current(self) -> Policy:
        """Return the policy, or raise NoPolicy: half a policy, or an old one, is never used."""
        with self._lock:
            if not self._up_to_date():
                self._reload()
            if self._policy is None:
                raise NoPolicy(*self._problems)
            return self._policy

    def _up_to_date(self) -> bool:
        if self._stamp is None or _stamp(self.path) != self._stamp:
            return False
        if not self._settled:
            self._settled = _long_ago(self._stamp)
            try:
                return _texts(self.path) == self._texts
            except NoPolicy:
                return self._texts is None
        return True

    def _reload(self) -> None:
        first = self._stamp is None
        self._policy, self._texts, self._stamp = None, None, _stamp(self.path)
        self._settled = False
        try:
            check_access(self.path, self._owners)
        except NoPolicy as trouble:
            # A chmod leaves the files as they were: look again at once.
            self._problems, self._stamp = trouble.problems, None
            return
        try:
            self._stamp, self._texts = _of_one_moment(self.path, self._pause, quiet=not first)
            self._policy = _load(self._texts)
        except NoPolicy as trouble:
            self._problems = trouble.problems
        else:
            if self._on_load is not None:
                self._on_load(self._policy)


def load_policy(path: Path, **instead: str) -> Policy:
    """Read and validate everything. Raises NoPolicy saying which file and what to do.

    instead: the text of a file, such as `inventory`, that is not written yet.
    """
    _, texts = _of_one_moment(path, time.sleep, quiet=False)
    return _load({**texts, **{f"{name}.yaml": text for name, text in instead.items()}})


def check_access(path: Path, owners: Collection[int] | None = None) -> None:
    """Raise NoPolicy if others may change the policy. owners: who may own it; anybody if left out.

    What is missing is for who reads it to say.
    """
    try:
        trouble = find_writer_above(path, owners)
        for name in FILES:
            if not trouble and (path / name).exists():
                trouble = find_writer(path / name, owners)
    except FileNotFoundError:
        return
    except OSError as error:
        raise NoPolicy(Problem(f"cannot be read: {error}", str(path))) from None
    if trouble:
        raise NoPolicy(Problem(f"{trouble}, as it says who may do what"))


def _stamp(path: Path) -> Stamp:
    stamps: list[tuple[int, int, int] | None] = []
    place = str(path)
    for name in FILES:
        try:
            # At every request: with a Path it takes several times as long.
            stat = os.stat(f"{place}/{name}")  # noqa: PTH116 - see above
        except OSError:
            stamps.append(None)
        else:
            stamps.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return stamps


def _long_ago(stamp: Stamp) -> bool:
    newest = max((one[0] for one in stamp if one), default=0)
    return time.time_ns() - newest > _TICK_NANOSECONDS


def _of_one_moment(
    path: Path, pause: Callable[[float], None], *, quiet: bool
) -> tuple[Stamp, Mapping[str, str]]:
    """Read all files as they were at one moment: who edits two is not seen half-way.

    quiet: wait until none has changed for a while, since an edit may be under way.
    """
    for _ in range(_MOST_TRIES):
        stamp = _stamp(path)
        if quiet:
            pause(_QUIET_SECONDS)
        texts = _texts(path)
        if _stamp(path) == stamp and _texts(path) == texts:
            return stamp, texts
        quiet = True
    said = f"the files in {path} keep changing: they are read when that has ended"
    raise NoPolicy(Problem(said))


def _texts(path: Path) -> Mapping[str, str]:
    texts = {name: _text(path / name) for name in NEEDED}
    # A directory without freezes has none; any other trouble with the file is trouble.
    freezes = path / "freezes.yaml"
    return texts | {"freezes.yaml": _text(freezes) if freezes.exists() else ""}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        missing = f"is missing: a policy directory holds {', '.join(NEEDED)}"
        if not file.parent.exists():
            missing += f". keyturn init {file.parent} writes one to start from"
        raise NoPolicy(Problem(missing, str(file))) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise NoPolicy(Problem("this is not UTF-8: save it as that", file.name, line)) from None
    except OSError as error:
        raise NoPolicy(Problem(f"cannot be read: {error}", str(file))) from None


def _load(texts: Mapping[str, str]) -> Policy:
    files = {name: YamlFile(name, text) for name, text in texts.items()}
    household = _household(files["people.yaml"], files["areas.yaml"])
    inventory = _checked([files["inventory.yaml"]], Inventory, files["inventory.yaml"].data())
    freezes = _freezes(files["freezes.yaml"], household)
    try:
        rules = Rules(texts["policy.cedar"])
    except RulesError as bad:
        raise NoPolicy(Problem(str(bad), "policy.cedar", bad.line)) from None
    for host in inventory:
        if host.area not in household.areas:
            there = ", ".join(sorted(household.areas)) or "none"
            said = f"host {host.name}: area {host.area} is not in areas.yaml, which has {there}"
            place = ("hosts", host.name, "area")
            raise NoPolicy(_problem([files["inventory.yaml"]], place, said))
    for naming in rules.namings:
        _check_known(naming, household, inventory)
    version = hashlib.sha256("\0".join(texts[name] for name in FILES).encode()).hexdigest()[:12]
    digests = {
        name: hashlib.sha256(text.encode()).hexdigest()[:12] for name, text in texts.items()
    }
    return Policy(household, inventory, rules, freezes, version=version, files=digests)


def _household(people: YamlFile, areas: YamlFile) -> Household:
    both = _named(people.data(), "people", "id") | _named(areas.data(), "areas", "name")
    return _checked([people, areas], Household, both)


def _freezes(file: YamlFile, household: Household) -> Freezes:
    if not file.text:
        return Freezes()
    freezes = _checked([file], Freezes, file.data())
    for n, freeze in enumerate(freezes.freezes):
        for area in freeze.areas:
            if area not in household.areas:
                said = f"{freeze.name}: there is no area {area} in areas.yaml"
                raise NoPolicy(file.problem(said, ("freezes", n, "areas")))
    return freezes


def _check_known(naming: Naming, household: Household, inventory: Inventory) -> None:
    """Refuse a rule that speaks of nobody: a forbid with a name mistyped would forbid nothing."""
    known: Mapping[str, Sequence[str]] = {
        "Role": sorted({*household.roles, *household.held}),
        "Person": sorted(household.people),
        "Area": sorted(household.areas),
        "Owners": sorted(household.areas),
        "Host": sorted(inventory.hosts),
    }
    there = known[naming.kind]
    if naming.name in there:
        return
    what = "area" if naming.kind == "Owners" else naming.kind.lower()
    todo = ", or list it under roles: there" if naming.kind == "Role" else ""
    said = (
        f'rule "{naming.rule}": there is no {what} "{naming.name}" in {naming.file}, but '
        f"{', '.join(there[:20]) or 'none at all'}: correct it{todo}"
    )
    raise NoPolicy(Problem(said, "policy.cedar", naming.line))


def _named(data: dict[str, Any], key: str, field: str) -> dict[str, Any]:
    """Give each member its own name, so that files need not say it twice."""
    members: Any = data.get(key)
    if isinstance(members, dict):
        spread: dict[str, Any] = {
            name: {**member, field: name} if isinstance(member, dict) else member
            for name, member in members.items()  # pyright: ignore[reportUnknownVariableType]
        }
        return {**data, key: spread}
    return data


def _checked(files: Sequence[YamlFile], model: type[Model], data: dict[str, Any]) -> Model:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = [_problem(files, _path(found), _in_words(found)) for found in error.errors()]
        # Of what may be either pydantic says twice why it is neither.
        problems = list(dict.fromkeys(problems))[:_MOST_PROBLEMS]
        raise NoPolicy(*problems) from None


def _path(problem: Any) -> Sequence[str | int]:
    """Return where a problem is: as pydantic says, as the check says, or as its first word."""
    if problem["loc"]:
        return problem["loc"]
    cause: object = problem.get("ctx", {}).get("error")
    where: Sequence[str | int] = getattr(cause, "where", ())
    word = str(cause).partition(":")[0]
    return where or ((word,) if word == "defaults" else ("hosts", word))


def _problem(files: Sequence[YamlFile], path: Sequence[str | int], said: str) -> Problem:
    file = next((file for file in files if file.holds(path[:1])), files[0])
    field = path[2:3]
    # What a host does not say itself is said by the defaults.
    if path[0] == "hosts" and field and not file.holds(path[:3]):
        default = ("defaults", *field)
        return file.problem(said, default if file.holds(default) else path)
    return file.problem(said, path)


def describe_validation_error(error: ValidationError, of: str = "") -> str:
    """Say what pydantic found, one problem after the other, as `where: what`.

    of: `hosts`, if it is one of them that was read by itself.
    """
    said = dict.fromkeys(_in_words(problem, of) for problem in error.errors())
    return "; ".join(list(said)[:_MOST_PROBLEMS])


def _in_words(problem: Any, of: str = "") -> str:
    place: Sequence[str | int] = problem["loc"]
    if place[-1:] and place[-1] in _EITHER:
        place = place[:-1]
    where = ".".join(str(part) for part in place)
    what = _PLAINLY.get(problem["type"]) or request_form.describe_invalid_value(problem)
    if problem["type"] == "string_pattern_mismatch":
        names = [part for part in place if isinstance(part, str)]
        of_hosts = (of or names[0]) in {"hosts", "defaults"} if names else False
        ways = _WRITTEN_OF_HOSTS if of_hosts else _WRITTEN
        wanted = ways.get(names[-1] if names else "")
        what = f"must be {wanted}" if wanted else what
    return f"{where}: {what}" if where else what
