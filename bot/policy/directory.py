"""The policy directory: loads people, areas, inventory and rules as a whole, or not at all."""

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from bot.policy.freezes import Freezes
from bot.policy.people import Household
from bot.policy.policy import NoPolicy, Policy
from bot.policy.rules import BadRules, Rules
from connectors.inventory import Inventory

NEEDED = ("people.yaml", "areas.yaml", "inventory.yaml", "policy.cedar")
FILES = (*NEEDED, "freezes.yaml")
Model = TypeVar("Model", bound=BaseModel)


class PolicyDirectory:
    """Hands out the policy that the files hold now. After a broken edit there is none."""

    def __init__(self, path: Path, on_load: Callable[[Policy], None] | None = None) -> None:
        self.path = path
        self._on_load = on_load
        self._lock = threading.Lock()
        self._stamp: object = None
        self._policy: Policy | None = None
        self._trouble = "the policy was never loaded"

    def current(self) -> Policy:
        """Return the policy, or raise NoPolicy: half a policy, or an old one, is never used."""
        with self._lock:
            stamp = self._now_on_disk()
            if stamp != self._stamp:
                self._stamp = stamp
                self._reload()
            if self._policy is None:
                raise NoPolicy(self._trouble)
            return self._policy

    def _reload(self) -> None:
        self._policy = None
        try:
            self._policy = load(self.path)
        except NoPolicy as trouble:
            self._trouble = str(trouble)
        else:
            if self._on_load is not None:
                self._on_load(self._policy)

    def _now_on_disk(self) -> object:
        stamps: list[tuple[int, int, int] | None] = []
        for name in FILES:
            try:
                stat = (self.path / name).stat()
            except OSError:
                stamps.append(None)
            else:
                stamps.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return stamps


def load(path: Path) -> Policy:
    """Read and validate everything. Raises NoPolicy saying which file and what to do."""
    texts = {name: _text(path / name) for name in NEEDED}
    # A directory without freezes has none; any other trouble with the file is trouble.
    texts["freezes.yaml"] = (
        _text(path / "freezes.yaml") if (path / "freezes.yaml").exists() else ""
    )
    version = hashlib.sha256("\0".join(texts[name] for name in FILES).encode()).hexdigest()[:12]
    people = _named(_yaml("people.yaml", texts), "people", "id")
    areas = _named(_yaml("areas.yaml", texts), "areas", "name")
    household = _checked("people.yaml and areas.yaml", Household, people | areas)
    inventory = _checked("inventory.yaml", Inventory, _yaml("inventory.yaml", texts))
    freezes = _freezes(texts)
    for freeze in freezes.freezes:
        for area in freeze.areas:
            if area not in household.areas:
                raise NoPolicy(f"freezes.yaml: {freeze.name}: there is no area {area}")
    try:
        rules = Rules(texts["policy.cedar"])
    except BadRules as bad:
        raise NoPolicy(f"policy.cedar, line {bad.line}: {bad}") from None
    return Policy(household, inventory, rules, freezes, version=version)


def _freezes(texts: dict[str, str]) -> Freezes:
    if not texts["freezes.yaml"]:
        return Freezes()
    return _checked("freezes.yaml", Freezes, _yaml("freezes.yaml", texts))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NoPolicy(
            f"{file} is missing: a policy directory holds {', '.join(NEEDED)}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise NoPolicy(f"{file} cannot be read: {error}") from None


def _yaml(name: str, texts: dict[str, str]) -> dict[str, Any]:
    try:
        data = YAML(typ="safe").load(texts[name])
    except RecursionError:
        raise NoPolicy(f"{name}: is nested too deeply to be read") from None
    except ValueError as error:
        raise NoPolicy(f"{name}: {error}") from None
    except YAMLError as error:
        mark: Any = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        what = str(getattr(error, "problem", None) or error)
        raise NoPolicy(f"{name}{where}: {what}") from None
    if not isinstance(data, dict):
        raise NoPolicy(f"{name}: must hold a mapping, such as {name.split('.')[0]}:")
    return data  # pyright: ignore[reportUnknownVariableType] - validated by pydantic next


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


def _checked(what: str, model: Callable[..., Model], data: dict[str, Any]) -> Model:
    try:
        return model(**data)
    except TypeError as error:
        raise NoPolicy(
            f"{what}: a mapping stands where words belong, or the reverse: {error}"
        ) from None
    except ValidationError as error:
        raise NoPolicy(f"{what}: {in_words(error)}") from None


def in_words(error: ValidationError) -> str:
    """Say what pydantic found, one problem after the other, as `where: what`."""
    problems = [
        f"{'.'.join(str(part) for part in problem['loc']) or 'as a whole'}: "
        + problem["msg"].removeprefix("Value error, ")
        for problem in error.errors()
    ]
    return "; ".join(problems[:5])
