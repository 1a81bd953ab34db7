"""Parse requests that are typed as words or filled in as a form. Pure."""

import difflib
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin
from weakref import WeakKeyDictionary

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from bot.model import host_patterns
from connectors.errors import DomainError
from connectors.visible_text import quote_text
from runbooks import AnyRunbook, list_pending_words, load_catalogue

# Messages by pydantic's error type; braces contain values of its error context.
_MESSAGES: Mapping[str, str] = {
    "literal_error": "must be one of {expected}",
    "enum": "must be one of {expected}",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "bool_parsing": "must be true or false",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be {le} or less",
    "missing": "is missing",
    "extra_forbidden": "is an unknown field: check the spelling",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "dict_type": "must be an object, with names and values",
    "model_attributes_type": "must be an object, with names and values",
    "model_type": "must be an object, with names and values",
    "too_short": "must not be empty",
    "string_too_short": "must have {min_length} characters or more",
    "string_too_long": "must have {max_length} characters at most",
}


# Messages for fields with a pattern, by field name.
_FIELD_MESSAGES: Mapping[str, str] = {
    "digest": "must be at least the first ten hex digits of the plan's digest",
}


def describe_invalid_value(problem: Mapping[str, Any]) -> str:
    """Return the message for one of pydantic's `errors()`."""
    context, location = problem.get("ctx", {}), problem["loc"]
    if (
        problem["type"] == "string_pattern_mismatch"
        and location
        and location[-1] in _FIELD_MESSAGES
    ):
        return _FIELD_MESSAGES[location[-1]]
    # pydantic quotes the choices, but people type them without quotation marks.
    message = _MESSAGES.get(problem["type"], "").format_map(context).replace("'", "")
    # The error of a validator of ours, without the words that pydantic puts before it.
    return message or str(context.get("error") or problem["msg"])


# Phones and chat programs replace straight quotes and hyphens by typographic ones. Pasted text
# can contain no-break spaces and other special spaces.
_TYPOGRAPHIC_SPACES = {
    ord(space): " " for space in "\u00a0\u1680\u2002\u2003\u2007\u2009\u200a\u202f\u205f\u3000"
}
_TYPED_CHARACTERS = str.maketrans("“”„‘’‚—–", "\"\"\"'''--", "") | _TYPOGRAPHIC_SPACES


class RequestSyntaxError(DomainError):
    """The words are not a valid request. The message says what is wrong and what to type."""

    code, status = "invalid-syntax", 422


class UnknownRunbookError(RequestSyntaxError):
    """No runbook has these words."""


class InvalidValuesError(RequestSyntaxError):
    """Some values are not valid.

    Args:
        runbook: The words of the runbook.
        problems: What is wrong, by field.
        usage: How the request is typed, to add to the message.
    """

    def __init__(self, runbook: str, problems: Mapping[str, str], *, usage: str = "") -> None:
        message = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
        super().__init__(f"{message}. Usage: {usage}" if usage else message)
        self.runbook, self.problems = runbook, problems


@dataclass(frozen=True)
class FormField:
    """One field of a request form."""

    name: str
    label: str
    hint: str
    kind: str
    """"host", "choice" or "text"."""
    required: bool
    choices: Sequence[str] = ()
    default: str = ""
    tag: str = ""
    """The tag that hosts must have; "" for none."""
    lists: str = ""
    """The options that the host lists for this field, such as "pools"; "" for none."""
    within: Sequence[str] = ()
    """The fields that these options depend on, such as a table."""


# A preview makes a runbook of each letter that is typed, which must not stay for its form.
_FORMS: WeakKeyDictionary[type[AnyRunbook], tuple[FormField, ...]] = WeakKeyDictionary()


def list_form_fields(runbook: type[AnyRunbook]) -> tuple[FormField, ...]:
    """List the fields of a form, in the order in which their values are typed."""
    if (known := _FORMS.get(runbook)) is None:
        known = _FORMS[runbook] = _build_form(runbook)
    return known


def _build_form(runbook: type[AnyRunbook]) -> tuple[FormField, ...]:
    # Of the fields themselves: their JSON Schema takes a hundred times as long.
    return tuple(_build_form_field(*one) for one in runbook.model_fields.items())


def is_value_valid(runbook: type[AnyRunbook], name: str, value: str) -> bool:
    """Return whether a value is valid for a field, regardless of the other fields."""
    try:
        runbook.model_validate({name: value})
    except ValidationError as error:
        # A problem without a field can only be caused by this value.
        return all(problem["loc"] and problem["loc"][0] != name for problem in error.errors())
    return True


def format_usage(runbook: type[AnyRunbook]) -> str:
    """Return the usage of a runbook: `abusers clear HOST ADDRESS [table=http]`."""
    parts = [
        field.name.upper() if field.required else f"[{field.name}={field.default}]"
        for field in list_form_fields(runbook)
    ]
    return " ".join([runbook.words, *parts])


def split_words(text: str) -> list[str]:
    """Split typed text into words like a shell, with typographic quotes made straight."""
    try:
        return shlex.split(text.translate(_TYPED_CHARACTERS))
    except ValueError:
        raise RequestSyntaxError("a quotation mark is not closed") from None


# Around words of a sentence, a list or a format.
_WHERE_LISTED = "For a list, type help in chat, or keyturn runbooks in a terminal."
_PUNCTUATION = ".,;:!?()[]{}*_~`'\"…"


def clean_word(word: str) -> str:
    """Return a word without the punctuation around it."""
    return word.strip(_PUNCTUATION).removesuffix("'s")


def clean_words(words: Sequence[str], hosts: Collection[str]) -> list[str]:
    """Return words without punctuation at their end, and names of hosts in lower case."""
    ended = [word.rstrip(".,;:!?") for word in words]
    lower = [word.lower() if word.lower() in hosts else word for word in ended]
    return [word for word in lower if word]


def find_runbook(words: Sequence[str]) -> tuple[type[AnyRunbook], Sequence[str]]:
    """Return the runbook that the first words name, and the remaining words."""
    for length in range(len(words), 0, -1):
        runbook = load_catalogue().get(" ".join(words[:length]).lower())
        if runbook is not None:
            return runbook, words[length:]
    if not words:
        raise RequestSyntaxError(f"the request is missing. {_WHERE_LISTED}")
    typed = f"{' '.join(words).lower()} "
    for pending in list_pending_words():
        if typed.startswith(f"{pending} "):
            raise RequestSyntaxError(
                f"{pending} is not enabled: two people review its files and run `keyturn runbook "
                f"enable {pending}`, and then Keyturn is restarted."
            )
    raise UnknownRunbookError(_suggest_runbooks(words))


def parse_request(runbook: type[AnyRunbook], words: Sequence[str]) -> AnyRunbook:
    """Fill the fields from words. Raises RequestSyntaxError."""
    return parse_values(runbook, assign_words(runbook, words))


def assign_words(runbook: type[AnyRunbook], words: Sequence[str]) -> dict[str, str]:
    """Return the typed values by field: `name=value` words, and the rest in order.

    Raises:
        RequestSyntaxError: A field is given twice, or there are too many words.
    """
    fields = runbook.model_fields
    named: dict[str, str] = {}
    positional: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        name = name.removeprefix("--").lower()
        if not equals or name not in fields:
            positional.append(word)
        elif name in named:
            raise RequestSyntaxError(f"{name} is given twice")
        else:
            named[name] = value
    unnamed = [name for name in fields if name not in named]
    if len(positional) > len(unnamed):
        raise RequestSyntaxError(
            f"{quote_text(positional[len(unnamed)])} is one word too many. "
            f"Usage: {format_usage(runbook)}"
        )
    return named | dict(zip(unnamed, positional, strict=False))


def get_valid_values(runbook: type[AnyRunbook], words: Sequence[str]) -> dict[str, str]:
    """Return the typed values that are valid, by field. Raises RequestSyntaxError."""
    return {
        name: value
        for name, value in assign_words(runbook, words).items()
        if is_value_valid(runbook, name, value)
    }


def parse_values(runbook: type[AnyRunbook], values: Mapping[str, str]) -> AnyRunbook:
    """Fill the fields from values by name. Raises InvalidValuesError with all problems."""
    try:
        return runbook.model_validate(dict(values))
    except ValidationError as error:
        is_incomplete = any(problem["type"] == "missing" for problem in error.errors())
        usage = format_usage(runbook) if is_incomplete else ""
        raise InvalidValuesError(
            runbook.words, _describe_problems(runbook, error), usage=usage
        ) from None


def _describe_problems(runbook: type[AnyRunbook], error: ValidationError) -> dict[str, str]:
    problems: dict[str, str] = {}
    for problem in error.errors():
        message = describe_invalid_value(problem)
        name = str(problem["loc"][0]) if problem["loc"] else message.split(" ", 1)[0]
        if problem["type"] == "string_pattern_mismatch":
            example = f"{runbook.words} {runbook.example}"
            message = f"{quote_text(problem['input'])} is not valid: for example, {example}"
        elif problem["loc"] and problem["type"] != "missing":
            message = f"{quote_text(problem['input'])} is not valid: {message}"
        problems.setdefault(name, message)
    return problems


def _suggest_runbooks(typed_words: Sequence[str]) -> str:
    typed = " ".join(typed_words[:3])
    # Compare as many words as the runbook has: the rest are values.
    ratios = {
        words: difflib.SequenceMatcher(
            None, words, " ".join(typed_words[: len(words.split())]).lower()
        ).ratio()
        for words in load_catalogue()
    }
    similar = sorted((words for words in ratios if ratios[words] > 0.6), key=lambda w: -ratios[w])
    if similar:
        return f"There is no runbook {quote_text(typed)}. Did you mean: {', '.join(similar[:5])}?"
    return f"There is no runbook {quote_text(typed)}. {_WHERE_LISTED}"


def _build_form_field(name: str, field: FieldInfo) -> FormField:
    inner = _read_annotation(field.annotation)
    choices = _list_choices(inner.annotation)
    extra = {**_get_extra(inner), **_get_extra(field)}
    default = None if field.default is PydanticUndefined else to_jsonable_python(field.default)
    return FormField(
        name=name,
        label=field.title or name.replace("_", " ").capitalize(),
        hint=field.description or inner.description or "",
        kind="host" if extra.get("choices") == "hosts" else "choice" if choices else "text",
        required=field.is_required(),
        choices=choices,
        default="" if default is None else _format_value(default),
        tag=str(extra.get("tag", "")),
        lists=str(extra.get("lists", "")),
        within=tuple(cast("Sequence[str]", extra.get("within", ()))),
    )


def _read_annotation(annotation: Any) -> FieldInfo:
    """Return what a type says of itself; for an optional one, what it is if it is given."""
    is_union = get_origin(annotation) in (Union, UnionType)
    variants = get_args(annotation) if is_union else (annotation,)
    return FieldInfo.from_annotation(next(one for one in variants if one is not NoneType))


def _list_choices(type_: object) -> list[str]:
    if type_ is bool:
        return ["false", "true"]
    if isinstance(type_, type) and issubclass(type_, Enum):
        return [str(one.value) for one in type_]
    return [str(one) for one in get_args(type_)] if get_origin(type_) is Literal else []


def _get_extra(field: FieldInfo) -> Mapping[str, object]:
    extra: object = field.json_schema_extra
    return cast("Mapping[str, object]", extra) if isinstance(extra, dict) else {}


def parse_request_for_hosts(
    runbook: type[AnyRunbook], words: Sequence[str], tags_by_host: Mapping[str, frozenset[str]]
) -> tuple[str, list[AnyRunbook]]:
    """Return how the hosts were typed, and a request for each of them.

    `lb*` names every host that matches, `@haproxy` every host with that tag, and `lb1,web*` both
    lb1 and the hosts that match web*. A single host gives one request and "".
    """
    _check_single_host(runbook, words, tags_by_host)
    index = _find_host_index(runbook, words)
    if index is None or not host_patterns.can_name_several_hosts(words[index]):
        return "", [parse_request(runbook, words)]
    prefix, word = _split_name_and_value(words[index])
    tag, parts = list_form_fields(runbook)[0].tag, host_patterns.split_host_parts(word)
    suitable = {name: tags for name, tags in tags_by_host.items() if not tag or tag in tags}
    hosts = dict.fromkeys(name for part in parts for name in _resolve_hosts(part, suitable, tag))
    requests = [
        parse_request(runbook, [*words[:index], f"{prefix}{name}", *words[index + 1 :]])
        for name in hosts
    ]
    return host_patterns.join_host_parts(parts), requests


def _check_single_host(
    runbook: type[AnyRunbook], words: Sequence[str], hosts: Collection[str]
) -> None:
    """Raise RequestSyntaxError if a second host would be taken for the value of another field.

    A word in the place of a required value is that value, even if it is also the name of a host.
    """
    fields = runbook.model_fields
    named = {_parse_field_name(word) for word in words}
    positional = [word for word in words if _parse_field_name(word) not in fields]
    unnamed = [field for field in list_form_fields(runbook) if field.name not in named]
    if not positional or positional[0].endswith(",") or not unnamed or unnamed[0].kind != "host":
        return
    has_excess = len(positional) > len(unnamed)
    for n, word in enumerate(positional[1:], start=1):
        field = unnamed[n] if n < len(unnamed) else None
        is_value = field is not None and (
            field.kind == "host" or (field.required and not has_excess)
        )
        if word.lower() in hosts and not is_value:
            name = f", or as {field.name}={word} if it is one" if field and not has_excess else ""
            raise RequestSyntaxError(
                f"{quote_text(word)} is a host: name several with commas, as in "
                f"{runbook.words} {positional[0]},{word}{name}"
            )


def _parse_field_name(word: str) -> str:
    return _split_name_and_value(word)[0].removeprefix("--").rstrip("=").lower()


def _resolve_hosts(
    part: str, tags_by_host: Mapping[str, frozenset[str]], tag: str
) -> Sequence[str]:
    if not part:
        raise RequestSyntaxError("separate hosts with a comma and no space: lb1,lb2")
    if not host_patterns.is_group_part(part):
        # The caller checks whether a host with this name exists.
        return [part]
    hosts = host_patterns.resolve_host_part(part, tags_by_host)
    if not hosts:
        condition = f" tagged {tag}" if tag else ""
        raise RequestSyntaxError(
            f"no host{condition} matches {quote_text(part)}: name hosts as in lb*, @tag or lb1,lb2"
        )
    return hosts


def _find_host_index(runbook: type[AnyRunbook], words: Sequence[str]) -> int | None:
    """Return the index of the host: of the word `host=…`, else of the first positional word."""
    fields = runbook.model_fields
    for index, word in enumerate(words):
        if _split_name_and_value(word)[0].removeprefix("--").lower() == "host=":
            return index
    positional = (
        n
        for n, word in enumerate(words)
        if _split_name_and_value(word)[0].rstrip("=").lower() not in fields
    )
    return next(positional, None)


def _split_name_and_value(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    return (name + equals, value) if equals else ("", word)


def get_field_texts(runbook: AnyRunbook) -> dict[str, str]:
    """Return the values as text, by field: as they are stored, shown and typed."""
    values = runbook.model_dump(mode="json", exclude_none=True)
    return {name: _format_value(value) for name, value in values.items()}


def format_request(runbook: AnyRunbook, **overrides: str) -> str:
    """Return the request as typed, without fields at their defaults."""
    return " ".join(list_request_words(runbook, **overrides))


def list_request_words(runbook: AnyRunbook, **overrides: str) -> list[str]:
    """Return the words of a request as typed, without quoting."""
    words = runbook.words.split()
    for name, value in (get_field_texts(runbook) | overrides).items():
        field = type(runbook).model_fields[name]
        if field.is_required():
            words.append(value)
        elif getattr(runbook, name) != field.default:
            words.append(f"{name}={value}")
    return words


def _format_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def get_required_tag(runbook: type[AnyRunbook]) -> str | None:
    """Return the tag that a runbook's host must carry; None if any host will do."""
    tag = _get_extra(runbook.model_fields["host"]).get("tag")
    return tag if isinstance(tag, str) else None
