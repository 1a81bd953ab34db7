"""The starter policy: files with comments that explain each part."""

import re
from collections.abc import Sequence
from importlib.resources import files
from io import StringIO
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML

from bot.model.text import fold_to_ascii
from bot.policy.loader import REQUIRED_FILES
from bot.policy.people import Area, Organisation, Person, SlackAccount
from connectors.inventory import Name

STARTER_FILES = (*REQUIRED_FILES, "freezes.yaml", "trees/example.yaml")
# Each may request any change, which the other approves; and each may stop, ban and resume.
_ROLES = ("developer", "administrator")
_NAME = TypeAdapter(Name)


class InvalidStarterError(ValueError):
    """A person or an area cannot be written. The message says why and what to do."""


def parse_person(typed: str, slack: str = "") -> Person:
    """Return a person from `NAME <E-MAIL>`, or only a name, with the first name as the id.

    slack: their account, as T…/U…; "" for none. Raises InvalidStarterError.
    """
    found = re.fullmatch(r"\s*([^<>]+?)\s*(?:<([^<>\s]+@[^<>\s]+)>\s*)?", typed)
    if found is None:
        raise InvalidStarterError(
            f"{typed!r} is not NAME <E-MAIL>, such as 'Olga Berg <olga@example.com>'"
        )
    team, _, user = slack.strip().partition("/")
    accounts = [{"team": team, "user": user}] if slack.strip() else []
    try:
        return Person.model_validate(
            {
                "id": re.sub(r"[^a-z0-9-]+", "", fold_to_ascii(found[1].split()[0])),
                "name": found[1],
                "email": found[2],
                "roles": _ROLES,
                "slack": [SlackAccount.model_validate(one) for one in accounts],
            }
        )
    except ValidationError as error:
        if error.title == SlackAccount.__name__:
            raise InvalidStarterError(
                f"{slack!r} is not TEAM/USER of Slack, such as T0123ABC/U0456DEF"
            ) from None
        raise InvalidStarterError(
            f"{typed!r} gives no valid id or address: write the first name in Latin letters"
        ) from None


def parse_area(typed: str) -> str:
    """Return the name of an area. Raises InvalidStarterError."""
    try:
        return _NAME.validate_python(typed)
    except ValidationError:
        raise InvalidStarterError(
            f"{typed!r} is not a name such as production: lower-case letters, digits and -"
        ) from None


def write_starter_policy(
    directory: Path, people: Sequence[Person] = (), area: str = ""
) -> list[Path]:
    """Write the starter files and return their paths.

    Args:
        directory: The policy directory; it is made.
        people: The first people, who own the area and approve for each other; examples if none.
        area: The name of their area.

    Raises:
        FileExistsError: A file exists.
        InvalidStarterError: Two people have the same id or account.
    """
    texts = {name: (files("bot.policy.starter") / name).read_text() for name in STARTER_FILES}
    if people:
        texts["people.yaml"] = _replace_entries(
            texts["people.yaml"], "people", {one.id: _describe_person(one) for one in people}
        )
        owners = [one.id for one in people]
        texts["areas.yaml"] = _replace_entries(
            texts["areas.yaml"], "areas", {area: {"title": area, "owners": owners}}
        )
        _check_people(people, area)
    refuse_existing_policy(directory)
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    (directory / "keys").mkdir(mode=0o700, exist_ok=True)
    (directory / "trees").mkdir(mode=0o755, exist_ok=True)
    for name, text in texts.items():
        file = directory / name
        file.write_text(text)
        file.chmod(0o644)
    return [directory / name for name in STARTER_FILES]


def refuse_existing_policy(directory: Path) -> None:
    """Raise FileExistsError if a directory has one of the starter files."""
    existing = [name for name in STARTER_FILES if (directory / name).exists()]
    if existing:
        raise FileExistsError(
            f"{directory} already contains {', '.join(existing)}: nothing was written"
        )


def _check_people(people: Sequence[Person], area: str) -> None:
    ids = [one.id for one in people]
    for twice in {one for one in ids if ids.count(one) > 1}:
        raise InvalidStarterError(
            f"two people would have the id {twice}: write one of their first names differently"
        )
    try:
        Organisation(
            people={one.id: one for one in people},
            areas={area: Area(name=area, title=area, owners=ids)},
        )
    except ValidationError as error:
        problem = error.errors()[0]
        cause = problem.get("ctx", {}).get("error")
        raise InvalidStarterError(str(cause or problem["msg"])) from None


def _describe_person(person: Person) -> dict[str, object]:
    fields = person.model_dump(mode="json", exclude_defaults=True)
    return {name: fields[name] for name in ("name", "email", "roles", "slack") if name in fields}


def _replace_entries(text: str, key: str, entries: dict[str, dict[str, object]]) -> str:
    """Return the text of a file with other entries under its last key."""
    yaml = YAML()
    yaml.allow_unicode = True
    yaml.default_flow_style = None
    stream = StringIO()
    yaml.dump({key: entries}, stream)
    return text[: text.index(f"\n{key}:\n") + 1] + stream.getvalue()
