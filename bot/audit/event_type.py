"""What a kind of log entry is: a frozen dataclass whose fields are the facts. Pure.

`bot.audit.events` has one class for each kind. The JSON of an entry holds the fields by name,
without those that have their default.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, TypeAlias, cast, dataclass_transform, get_args

from pydantic import ConfigDict, Field, TypeAdapter

from bot.model.canonical import Canonical
from bot.model.run_states import Tone
from bot.model.times import LAST_TIME

NamePerson = Callable[[str], str]
# The id of a person, which is shown as their name.
PersonId: TypeAlias = Annotated[str, "person"]
# What an entry revokes if no field holds it: something of the person of the entry.
PERSON = "person"
# In microseconds since 1970: a time that can be shown.
Time: TypeAlias = Annotated[int, Field(ge=0, le=LAST_TIME)]
# Facts in JSON: settings, plans, timings.
Document: TypeAlias = Mapping[str, Any]

# Approvals of large plans are long, and read several times for each run.
_MAX_PARSED = 64
# Who did something is left out where that is not known.
_BY_WHOM = re.compile(r",? (by|for) \{who\}")


@dataclass(frozen=True)
class EventText:
    """An event for people. Tone and icon are those of run_states.

    Title and detail can contain {who}, {host} and {name}, for the name of the person, the host,
    and any attribute of the event.
    """

    title: str
    detail: str = ""
    tone: Tone = Tone.NEUTRAL
    icon: str = "dot"


def _get_default(field: dataclasses.Field[Any]) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _holds_people(annotation: object) -> bool:
    return PersonId in (annotation, *get_args(annotation))


# Every kind, filled by the classes of bot.audit.events.
_TYPES_BY_KIND: dict[str, type["Event"]] = {}


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,)
)
class Event:
    """What happened. Each kind of entry is a subclass, and its fields are the facts.

    Class keywords:
        kind: The word that is stored; a class without it is only a base of others.
        decides: Whether it decides if its run may continue, so that its removal is detected.
        revokes: The field that holds what it revokes for good or until it is lifted, or PERSON.
        by_agent: Whether an agent may do it.
    """

    kind: str
    shown: ClassVar[EventText]
    """How people read it; default: the kind. Subclasses do not inherit it."""
    decides: ClassVar[bool]
    revokes: ClassVar[str]
    by_agent: ClassVar[bool]
    person_facts: ClassVar[frozenset[str]]
    """The facts that hold ids of people."""
    _defaults: ClassVar[tuple[tuple[str, Any], ...]]
    # A fact that this version does not know makes the event an unknown one.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")

    def __init_subclass__(
        cls,
        *,
        kind: str = "",
        decides: bool = False,
        revokes: str = "",
        by_agent: bool = False,
    ) -> None:
        dataclass(frozen=True, kw_only=True)(cls)
        fields = dataclasses.fields(cast("Any", cls))
        cls._defaults = tuple((each.name, _get_default(each)) for each in fields)
        cls.person_facts = frozenset(each.name for each in fields if _holds_people(each.type))
        cls.shown = vars(cls).get("shown") or EventText(kind.capitalize())
        cls.decides, cls.revokes, cls.by_agent = decides, revokes, by_agent
        if not kind:
            return
        if kind in _TYPES_BY_KIND:
            raise TypeError(f"two events are of the kind “{kind}”")
        if revokes not in {"", PERSON, *dict(cls._defaults)}:
            raise TypeError(f"{cls.__name__} has no field {revokes}")
        cls.kind = kind
        _TYPES_BY_KIND[kind] = cls

    def encode(self) -> dict[str, Canonical]:
        """Return the facts that differ from their defaults, by name."""
        return {
            name: value
            for name, default in self._defaults
            if (value := getattr(self, name)) != default
        }

    def get_fact(self, name: str) -> object:
        """Return a fact by its name; None if the event has none of this name.

        An UnknownEvent has it as well: whatever revokes something does so too where this version
        does not know the rest of its facts.
        """
        return getattr(self, name) if name in dict(self._defaults) else None

    def describe(self, who: str, host: str, name_person: NamePerson) -> EventText:
        """Return the event for people. who: the name of its person; "" if it has none."""
        texts = _Texts(self, who=who, host=host or "the host")
        for name in self.person_facts:
            people = getattr(self, name)
            texts[name] = (
                name_person(people)
                if isinstance(people, str)
                else ", ".join(map(name_person, people))
            )
        shown = self.get_shown()
        title = shown.title if who else _BY_WHOM.sub("", shown.title)
        return dataclasses.replace(
            shown, title=title.format_map(texts), detail=shown.detail.format_map(texts)
        )

    def get_shown(self) -> EventText:
        """Return how people read it, where that depends on the facts."""
        return self.shown


def list_event_types() -> list[type[Event]]:
    """Return the class of every kind, in the order of their definition."""
    return list(_TYPES_BY_KIND.values())


def is_known_kind(kind: str) -> bool:
    return kind in _TYPES_BY_KIND


def parse_facts(body: object) -> dict[str, Any]:
    """Return the facts in the body of an entry; none if it is not a JSON object, so not ours."""
    try:
        facts: object = json.loads(cast("Any", body))
    except (ValueError, TypeError, RecursionError):
        return {}
    return cast("dict[str, Any]", facts) if isinstance(facts, dict) else {}


class UnknownEvent(Event):
    """An event of a kind or with facts that this version does not know, or a damaged one."""

    kind: str
    facts: Document = dataclasses.field(default_factory=dict[str, Any])

    def encode(self) -> dict[str, Canonical]:
        return dict(self.facts)

    def get_fact(self, name: str) -> object:
        return self.facts.get(name)

    def get_shown(self) -> EventText:
        return EventText(
            _escape(self.kind.capitalize()), _escape(str(self.get_fact("summary") or ""))
        )


@lru_cache(_MAX_PARSED)
def parse_event(kind: str, body: str) -> Event:
    """Return the event that an entry holds; an UnknownEvent if it is none of ours."""
    known = _TYPES_BY_KIND.get(kind)
    if known is not None:
        try:
            return _get_adapter(known).validate_json(body)
        except (ValueError, TypeError, RecursionError):
            pass
    # SQLite stores values of any type in any column.
    return UnknownEvent(kind=str(kind), facts=parse_facts(body))


@lru_cache(None)
def _get_adapter(event_type: type[Event]) -> TypeAdapter[Event]:
    return TypeAdapter(event_type)


class _Texts(dict[str, str]):
    """The texts that a pattern can contain: those given, and the attributes of an event."""

    def __init__(self, event: Event, **texts: str) -> None:
        super().__init__(texts)
        self._event = event

    def __missing__(self, name: str) -> str:
        value: object = getattr(self._event, name)
        if isinstance(value, tuple):
            return ", ".join(map(str, cast("tuple[object, ...]", value)))
        return "" if value is None else str(value)


def _escape(text: str) -> str:
    """Return a text that stays as it is where it is formatted."""
    return text.replace("{", "{{").replace("}", "}}")
