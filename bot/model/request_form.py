"""A request as words typed after a command and as fields of a form. Pure."""

import difflib
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from bot.model import host_patterns
from connectors.command import quote_text
from runbooks import AnyRunbook, load_catalogue

# What pydantic calls it, and what is to be done; in braces stands what it knows of the limit.
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
    "extra_forbidden": "is not known here: is it mistyped?",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "dict_type": "must be an object, with names and values",
    "model_attributes_type": "must be an object, with names and values",
    "model_type": "must be an object, with names and values",
    "string_too_short": "must have {min_length} characters or more",
    "string_too_long": "must have {max_length} characters at most",
}


# What is written in a certain way, by the name of its field.
_FIELD_MESSAGES: Mapping[str, str] = {
    "digest": "must be the plan's digest, ten of its digits at least: 0 to 9 and a to f",
}


def describe_invalid_value(problem: Mapping[str, Any]) -> str:
    """Return what is wrong with one value, as pydantic's `errors()` tells of it."""
    context, place = problem.get("ctx", {}), problem["loc"]
    if problem["type"] == "string_pattern_mismatch" and place and place[-1] in _FIELD_MESSAGES:
        return _FIELD_MESSAGES[place[-1]]
    # Choices come in quotation marks that nobody types.
    said = _MESSAGES.get(problem["type"], "").format_map(context).replace("'", "")
    return said or str(problem["msg"]).removeprefix("Value error, ")


# Phones and chat programs turn straight quotes and hyphens into typographic ones as people type.
# A no-break space, or any other that is not typed, comes with what is pasted.
_TYPOGRAPHIC_SPACES = {
    ord(space): " " for space in "\u00a0\u1680\u2002\u2003\u2007\u2009\u200a\u202f\u205f\u3000"
}
_TYPED_CHARACTERS = str.maketrans("“”„‘’‚—–", "\"\"\"'''--", "") | _TYPOGRAPHIC_SPACES


class RequestSyntaxError(Exception):
    """The words are no request. The message says what is wrong and what to type."""


class InvalidValuesError(RequestSyntaxError):
    """Some values do not fit their fields. problems: what is wrong, by field.

    typed: how all of it is typed, where that is to be said.
    """

    def __init__(self, runbook: str, problems: Mapping[str, str], *, usage: str = "") -> None:
        said = "; ".join(f"{name}: {what}" for name, what in problems.items())
        super().__init__(f"{said}. It is typed {usage}" if usage else said)
        self.runbook, self.problems = runbook, problems


@dataclass(frozen=True)
class FormField:
    """One field as a person sees it, whatever draws it.

    kind: what to offer: "host", "choice" or "text". tag: hosts must carry it.
    lists: which of the things that its host lists it names, such as "pools"; "" if of none.
    within: the fields whose values say where the host looks for them, such as a table.
    """

    name: str
    label: str
    hint: str
    kind: str
    required: bool
    choices: Sequence[str] = ()
    default: str = ""
    tag: str = ""
    lists: str = ""
    within: Sequence[str] = ()


def list_form_fields(runbook: type[AnyRunbook]) -> list[FormField]:
    """List the blanks of a form, in the order in which the words are typed."""
    schema = runbook.model_json_schema()
    required: list[str] = schema.get("required", [])
    return [
        _build_form_field(
            name,
            _resolve_reference(field, schema),
            label=runbook.model_fields[name].title or name.replace("_", " ").capitalize(),
            required=name in required,
        )
        for name, field in schema["properties"].items()
    ]


def is_value_valid(runbook: type[AnyRunbook], name: str, value: str) -> bool:
    """Return whether a value fits one field, whatever the others are."""
    try:
        runbook.model_validate({name: value})
    except ValidationError as error:
        # What is wrong with no field is wrong with the one value that is given.
        return all(problem["loc"] and problem["loc"][0] != name for problem in error.errors())
    return True


def format_usage(runbook: type[AnyRunbook]) -> str:
    """Return how it is typed: `abusers clear HOST ADDRESS [table=http]`."""
    parts = [
        blank.name.upper() if blank.required else f"[{blank.name}={blank.default}]"
        for blank in list_form_fields(runbook)
    ]
    return " ".join([runbook.words, *parts])


def split_words(text: str) -> list[str]:
    """Split what was typed into words, as a shell would, with typographic quotes made straight."""
    try:
        return shlex.split(text.translate(_TYPED_CHARACTERS))
    except ValueError:
        raise RequestSyntaxError("a quotation mark is missing its partner") from None


def find_runbook(words: Sequence[str]) -> tuple[type[AnyRunbook], Sequence[str]]:
    """Return the runbook whose words stand at the beginning, and the words left over."""
    for length in range(len(words), 0, -1):
        runbook = load_catalogue().get(" ".join(words[:length]).lower())
        if runbook is not None:
            return runbook, words[length:]
    if not words:
        raise RequestSyntaxError("no request is named. Type help to see what there is.")
    raise RequestSyntaxError(_suggest_runbooks(words))


def parse_request(runbook: type[AnyRunbook], words: Sequence[str]) -> AnyRunbook:
    """Fill the fields from `name=value` words, and those left over in their order."""
    fields = runbook.model_fields
    named: dict[str, str] = {}
    plain: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        name = name.removeprefix("--").lower()
        if not equals or name not in fields:
            plain.append(word)
        elif name in named:
            raise RequestSyntaxError(f"{name} is given twice")
        else:
            named[name] = value
    places = [name for name in fields if name not in named]
    if len(plain) > len(places):
        raise RequestSyntaxError(
            f"{quote_text(plain[len(places)])} is one word too many. "
            f"It is typed {format_usage(runbook)}"
        )
    return parse_values(runbook, named | dict(zip(places, plain, strict=False)))


def parse_values(runbook: type[AnyRunbook], values: Mapping[str, str]) -> AnyRunbook:
    """Fill the fields from values by name. Raises Misfit with every problem at once."""
    try:
        return runbook.model_validate(dict(values))
    except ValidationError as error:
        lacking = any(problem["type"] == "missing" for problem in error.errors())
        typed = format_usage(runbook) if lacking else ""
        raise InvalidValuesError(
            runbook.words, _describe_problems(runbook, error), usage=typed
        ) from None


def _describe_problems(runbook: type[AnyRunbook], error: ValidationError) -> dict[str, str]:
    found: dict[str, str] = {}
    for problem in error.errors():
        message = describe_invalid_value(problem)
        name = str(problem["loc"][0]) if problem["loc"] else message.split(" ", 1)[0]
        if problem["type"] == "string_pattern_mismatch":
            typed = f"{runbook.words} {runbook.example}"
            message = f"{quote_text(problem['input'])} does not fit: it is written as in {typed}"
        elif problem["loc"] and problem["type"] != "missing":
            message = f"{quote_text(problem['input'])} does not fit: {message}"
        found.setdefault(name, message)
    return found


def _suggest_runbooks(typed_words: Sequence[str]) -> str:
    said = " ".join(typed_words[:3])
    # People mistype the words, not the values behind them, so compare equally many words.
    close = [
        words
        for words in load_catalogue()
        if difflib.SequenceMatcher(
            None, words, " ".join(typed_words[: len(words.split())]).lower()
        ).ratio()
        > 0.6
    ]
    if close:
        return f"There is no {quote_text(said)}. Did you mean: {', '.join(close[:5])}?"
    return f"There is no {quote_text(said)}. Type help to see what there is."


def _resolve_reference(field: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Resolve a reference into the schema's definitions, and what may also be left empty."""
    reference = field.get("$ref", "")
    if reference:
        return schema["$defs"][reference.rsplit("/", 1)[-1]] | field
    filled = [one for one in field.get("anyOf", ()) if one.get("type") != "null"]
    return {**_resolve_reference(filled[0], schema), **field} if filled else field


def _build_form_field(
    name: str, field: Mapping[str, Any], *, label: str, required: bool
) -> FormField:
    choices = [str(choice) for choice in field.get("enum", ())]
    if field.get("type") == "boolean":
        choices = ["false", "true"]
    kind = "host" if field.get("choices") == "hosts" else "choice" if choices else "text"
    default = field.get("default")
    return FormField(
        name=name,
        label=label,
        hint=str(field.get("description", "")),
        kind=kind,
        required=required,
        choices=choices,
        default=""
        if default is None
        else str(default).lower()
        if isinstance(default, bool)
        else str(default),
        tag=str(field.get("tag", "")),
        lists=str(field.get("lists", "")),
        within=tuple(field.get("within", ())),
    )


def parse_request_for_hosts(
    runbook: type[AnyRunbook], words: Sequence[str], tags_by_host: Mapping[str, frozenset[str]]
) -> tuple[str, list[AnyRunbook]]:
    """Fill the fields for each host that was meant, and return how the hosts were spelled.

    `lb*` means every host whose name fits, `@haproxy` every host with that tag, and `lb1,web*`
    each that is named so. hosts: the tags of every host, by its name. One host spelled out comes
    back as one request.
    """
    _check_single_host(runbook, words, tags_by_host)
    place = _find_host_index(runbook, words)
    if place is None or not host_patterns.can_name_several_hosts(words[place]):
        return "", [parse_request(runbook, words)]
    before, word = _split_name_and_value(words[place])
    tag, parts = list_form_fields(runbook)[0].tag, host_patterns.split_host_parts(word)
    fit = {name: tags for name, tags in tags_by_host.items() if not tag or tag in tags}
    meant = dict.fromkeys(name for part in parts for name in _resolve_hosts(part, fit, tag))
    requests = [
        parse_request(runbook, [*words[:place], f"{before}{name}", *words[place + 1 :]])
        for name in meant
    ]
    return host_patterns.join_host_parts(parts), requests


def _check_single_host(
    runbook: type[AnyRunbook], words: Sequence[str], hosts: Collection[str]
) -> None:
    """Raise NotUnderstood where a second host would be taken for something else.

    A word in the place of a value that must be given is that value, whatever it is called.
    """
    fields = runbook.model_fields
    named = {_parse_field_name(word) for word in words}
    plain = [word for word in words if _parse_field_name(word) not in fields]
    places = [blank for blank in list_form_fields(runbook) if blank.name not in named]
    if not plain or plain[0].endswith(",") or not places or places[0].kind != "host":
        return
    excess = len(plain) > len(places)
    for n, word in enumerate(plain[1:], start=1):
        blank = places[n] if n < len(places) else None
        taken = blank is not None and (blank.kind == "host" or (blank.required and not excess))
        if word.lower() in hosts and not taken:
            name = f", or as {blank.name}={word} if it is one" if blank and not excess else ""
            raise RequestSyntaxError(
                f"{quote_text(word)} is a host: name several with commas, as in "
                f"{runbook.words} {plain[0]},{word}{name}"
            )


def _parse_field_name(word: str) -> str:
    return _split_name_and_value(word)[0].removeprefix("--").rstrip("=").lower()


def _resolve_hosts(
    part: str, tags_by_host: Mapping[str, frozenset[str]], tag: str
) -> Sequence[str]:
    if not part:
        raise RequestSyntaxError("a comma stands between two hosts, without a space: lb1,lb2")
    if not host_patterns.is_group_part(part):
        # Whoever asks for it says what is wrong with a name.
        return [part]
    meant = host_patterns.resolve_host_part(part, tags_by_host)
    if not meant:
        what = f" tagged {tag}" if tag else ""
        raise RequestSyntaxError(
            f"no host{what} is meant by {quote_text(part)}: runs on hosts such as lb*, @tag or "
            "lb1,lb2"
        )
    return meant


def _find_host_index(runbook: type[AnyRunbook], words: Sequence[str]) -> int | None:
    """Return which word says the host: the one named so, else the first that is not named."""
    fields = runbook.model_fields
    for place, word in enumerate(words):
        if _split_name_and_value(word)[0].removeprefix("--").lower() == "host=":
            return place
    plain = (
        n
        for n, word in enumerate(words)
        if _split_name_and_value(word)[0].rstrip("=").lower() not in fields
    )
    return next(plain, None)


def _split_name_and_value(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    return (name + equals, value) if equals else ("", word)


def get_field_texts(runbook: AnyRunbook) -> dict[str, str]:
    """Return the fields as text, as they are stored, shown and typed."""
    values = runbook.model_dump(mode="json", exclude_none=True)
    return {name: _format_value(value) for name, value in values.items()}


def format_request(runbook: AnyRunbook, **overrides: str) -> str:
    """Return the request as it would be typed, without fields at their defaults."""
    return " ".join(list_request_words(runbook, **overrides))


def list_request_words(runbook: AnyRunbook, **overrides: str) -> list[str]:
    """Return the words of a request as they would be typed, without quoting."""
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
