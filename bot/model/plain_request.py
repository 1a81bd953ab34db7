"""Find the runbooks that a request in plain words can mean, with the values that it names. Pure.

Words are compared with what each runbook says about itself: its words, `also_called`, the first
line of its description, the tag of its hosts, its fields and their choices. A rare word counts
more than one that many runbooks have. A value counts where only a field of its type accepts it.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise

from bot.model.request_form import (
    FormField,
    RequestSyntaxError,
    clean_word,
    get_required_tag,
    is_value_valid,
    list_form_fields,
    split_words,
)
from bot.model.word_forms import is_one_slip_apart, reduce_to_stem
from connectors.inventory import Host
from runbooks import AnyRunbook, load_catalogue
from runbooks._catalogue import get_kind

_STOP_TEXT = (
    "a an the on in of for to and or at by with from into onto it its is are be was were this "
    "that "
    "these those there please pls plz can could would should will may must i me my we us our you "
    "your want wants need needs like just now again some any do does did how what why when where "
    "which have has get got give let lets make so thanks thank hey hi hello keyturn bot host "
    "hosts "
    "server machine box called named "
)
_STOP_WORDS = frozenset(_STOP_TEXT.split())
# Letters and digits.
_WORD = re.compile(r"[^\W_]+")
# Words that people use for one another, whatever the runbook.
_ALIKE = (
    ("show", "list", "check", "see", "view", "display", "status", "state", "look"),
    ("restart", "bounce", "reboot"),
    ("remove", "delete", "drop"),
    ("stop", "halt", "end", "kill"),
    ("block", "ban", "deny", "blacklist"),
    ("unblock", "unban", "unblacklist"),
    ("allow", "whitelist", "permit"),
    ("disk", "drive"),
    ("ssl", "tls", "certificate", "cert"),
)
_NAME_WEIGHT, _OTHER_NAME_WEIGHT, _ALIKE_WEIGHT, _SLIP_WEIGHT = 3.0, 2.0, 0.7, 0.8
_VERB_WEIGHT, _PURPOSE_WEIGHT, _FIELD_WEIGHT = 2.0, 1.0, 0.7
# A required value that is given, by a type that accepts no plain word, or by its place.
_TYPED_VALUE, _PLACED_VALUE, _BORROWED_VALUE = 2.5, 0.5, -0.2
_MISSING_VALUE, _LEFT_WORD = -0.4, -0.6
# More words are a story around the request.
_MAX_LEFT_WORDS = 2
# All words of a runbook, or of another name for it.
_WHOLE_NAME = 1.5
# How near a runbook must come to the best one, to be offered beside it.
_NEARNESS = 0.8
_MIN_SCORE = 1.0
_MAX_WORDS = 40
# A field that refuses these accepts only values of its type.
_PLAIN_WORDS = ("example", "Zq")


@dataclass(frozen=True)
class PlainRequest:
    """What was typed, as words."""

    words: Sequence[str]
    """In the order in which they were typed, without punctuation around them."""
    hosts: Sequence[str]
    """The hosts of the inventory among them."""


@dataclass(frozen=True)
class Suggestion:
    """A runbook that a plain request can mean."""

    runbook: type[AnyRunbook]
    values: Mapping[str, str]
    """The valid values that were typed, by field."""
    score: float

    def list_words(self) -> list[str]:
        """Return the request as typed, each value with its field."""
        return [
            *self.runbook.words.split(),
            *(f"{name}={value}" for name, value in self.values.items()),
        ]


def parse_plain_request(text: str, hosts: Mapping[str, Host]) -> PlainRequest:
    """Split a plain text into words, and recognise the hosts."""
    try:
        typed = split_words(text)
    except RequestSyntaxError:
        typed = text.split()
    parts = (part for word in typed[:_MAX_WORDS] for part in _split_list(word, hosts))
    words = [word for word in map(clean_word, parts) if word]
    found = [_find_host(word, hosts) for word in words]
    words = [host or word for word, host in zip(words, found, strict=True)]
    return PlainRequest(words, list(dict.fromkeys(filter(None, found))))


def find_suggestions(request: PlainRequest, hosts: Mapping[str, Host]) -> list[Suggestion]:
    """Return the runbooks that fit, best first; a run that changes nothing first among equals.

    Those that support the named hosts come first; the others follow without a host.
    """
    catalogue = load_catalogue().values()
    # A host keeps its place: "on" is a value at the end of a text only.
    words = ["" if word in request.hosts else word for word in request.words]
    terms = _list_known_terms(words, catalogue)
    named = [hosts[name] for name in request.hosts]
    best = [
        one
        for runbook in catalogue
        for host in (named or [None])
        if (host is None or _supports(runbook, host))
        and (one := _fit_runbook(runbook, words, terms, host)) is not None
    ]
    if named and not best:
        found = (_fit_runbook(runbook, words, terms, None) for runbook in catalogue)
        best = [one for one in found if one is not None]
    return sorted(
        best,
        key=lambda one: (
            -round(one.score, 6),
            get_kind(one.runbook) == "change",
            len(one.runbook.words.split()),
            one.runbook.words,
        ),
    )


def _supports(runbook: type[AnyRunbook], host: Host) -> bool:
    tag = get_required_tag(runbook)
    return not tag or tag in host.tags


def select_nearest(suggestions: Sequence[Suggestion]) -> list[Suggestion]:
    """Return the best suggestion, and the others that come near it."""
    least = max(_MIN_SCORE, suggestions[0].score * _NEARNESS) if suggestions else 0.0
    return [one for one in suggestions if one.score >= least]


def search_runbooks(text: str) -> list[type[AnyRunbook]]:
    """Return the runbooks whose words or purpose a text names, best first; "": all, by words."""
    runbooks = list(load_catalogue().values())
    typed = text.strip().lower()
    if not typed:
        return runbooks
    words = [word for word in parse_plain_request(text, {}).words if not _is_stop_word(word)]
    terms = _list_known_terms(words, runbooks)
    scores = {one: terms.weigh_all(words, one) for one in runbooks}
    meant = [one for one in runbooks if scores[one] > 0]
    meant.sort(key=lambda one: (-scores[one], len(one.words.split()), one.words))
    # While a person types, the last word is not complete.
    containing = [one for one in runbooks if typed in _describe_all(one)]
    named = [one for one in containing if typed in one.words]
    return list(dict.fromkeys([*meant, *named, *containing]))


@cache
def _describe_all(runbook: type[AnyRunbook]) -> str:
    purpose = (runbook.__doc__ or "").strip().partition("\n")[0]
    return " ".join([runbook.words, *runbook.also_called, purpose]).lower()


# --- hosts ---


def _split_list(word: str, hosts: Mapping[str, Host]) -> list[str]:
    """Split `lb1,lb2` into its hosts; other lists are one value."""
    parts = [clean_word(part) for part in word.split(",")]
    are_hosts = all(_find_host(part, hosts) for part in parts if part)
    return [part for part in parts if part] if are_hosts and any(parts) else [word]


def _find_host(word: str, hosts: Mapping[str, Host]) -> str:
    """Return the host that a word names: `LB1`, `lb-1`, `lb1.example.com` or `bl1`; else ""."""
    name = word.lower().removeprefix("host=")
    if name in hosts:
        return name
    first, dot, rest = name.partition(".")
    if dot and first in hosts and any(letter.isalpha() for letter in rest):
        return first
    joined = name.replace("-", "").replace("_", "")
    same = [host for host in hosts if host.replace("-", "") == joined]
    if not same and any(letter.isdigit() for letter in name):
        # A digit is part of the name: lb2 is not lb1 with a slip.
        digits = _get_digits(name)
        same = [
            host for host in hosts if _get_digits(host) == digits and is_one_slip_apart(name, host)
        ]
    return same[0] if len(same) == 1 else ""


def _get_digits(name: str) -> str:
    return "".join(letter for letter in name if letter.isdigit())


# --- words ---


@dataclass(frozen=True)
class _Terms:
    """The typed words that runbooks have: for each word, the stems and how much each counts."""

    stems: Mapping[str, Mapping[str, float]]
    counts: Mapping[str, int]
    """How many runbooks have a stem."""
    total: int
    """How many runbooks there are."""

    @cached_property
    def exact(self) -> frozenset[str]:
        """The stems that were typed without a slip."""
        found = (stems.items() for stems in self.stems.values())
        return frozenset(stem for items in found for stem, factor in items if factor == 1)

    def weigh(self, word: str, runbook: type[AnyRunbook]) -> float:
        """Return how much a word speaks for a runbook."""
        weights = _list_terms(runbook)
        found = self.stems.get(word) or self._find_name_slip(word, runbook)
        return max(
            (
                factor * weights[stem] * self._get_rarity(stem)
                for stem, factor in found.items()
                if stem in weights
            ),
            default=0.0,
        )

    def _find_name_slip(self, word: str, runbook: type[AnyRunbook]) -> Mapping[str, float]:
        """Return the short word of a runbook that is meant, if another of its words was typed."""
        names, *_ = _list_names(runbook)
        if not (word.isalpha() and names & self.exact) or _is_stop_word(word):
            return {}
        stem = reduce_to_stem(word)
        return {one: _SLIP_WEIGHT for one in names - self.exact if is_one_slip_apart(stem, one)}

    def _get_rarity(self, stem: str) -> float:
        return math.log(1 + self.total / self.counts[stem]) / 4

    def weigh_all(self, words: Sequence[str], runbook: type[AnyRunbook]) -> float:
        """Return how much all words speak for a runbook."""
        names = self.count_whole_names(runbook) + _count_small_words(runbook, words)
        return sum(self.weigh(word, runbook) for word in words) + names * _WHOLE_NAME

    def is_known(self, word: str) -> bool:
        """Return whether a word is one of a runbook, perhaps with a slip."""
        return word in self.stems

    def count_whole_names(self, runbook: type[AnyRunbook]) -> int:
        """Return 1 if every word of a name of the runbook was typed."""
        return any(name <= self.exact for name in _list_names(runbook))


@cache
def _list_terms(runbook: type[AnyRunbook]) -> Mapping[str, float]:
    """Return the stems of what a runbook says about itself, with the weight of each."""
    purpose = split_plain_words((runbook.__doc__ or "").strip().partition("\n")[0])
    weighted: list[tuple[str, float]] = [(word, _PURPOSE_WEIGHT) for word in purpose[1:]]
    weighted += [(word, _VERB_WEIGHT) for word in purpose[:1]]
    for form_field in list_form_fields(runbook):
        texts = (form_field.name, form_field.label, form_field.lists, form_field.tag)
        weighted += [
            (word, _FIELD_WEIGHT)
            for text in (*texts, *form_field.choices)
            for word in split_plain_words(text)
        ]
    weighted += [(word, _NAME_WEIGHT) for word in split_plain_words(runbook.words)]
    weighted += [
        (word, _OTHER_NAME_WEIGHT)
        for name in runbook.also_called
        for word in split_plain_words(name)
    ]
    terms: dict[str, float] = {}
    for word, weight in weighted:
        stem = reduce_to_stem(word)
        terms[stem] = max(weight, terms.get(stem, 0.0))
    return terms


@cache
def _list_names(runbook: type[AnyRunbook]) -> Sequence[frozenset[str]]:
    """Return the stems of each name of a runbook."""
    names = (runbook.words, *runbook.also_called)
    return [frozenset(map(reduce_to_stem, split_plain_words(name))) for name in names]


def _count_small_words(runbook: type[AnyRunbook], words: Sequence[str]) -> int:
    """Return how many stop words of a runbook were typed where it has them: *power on*."""
    pairs = set(pairwise(runbook.words.split()))
    return sum(_is_stop_word(pair[1]) and pair in pairs for pair in pairwise(words))


def split_plain_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without stop words."""
    return [word for word in _WORD.findall(text.lower()) if word not in _STOP_WORDS]


def _list_known_terms(words: Sequence[str], catalogue: Iterable[type[AnyRunbook]]) -> _Terms:
    runbooks = list(catalogue)
    counts: dict[str, int] = {}
    for runbook in runbooks:
        for stem in _list_terms(runbook):
            counts[stem] = counts.get(stem, 0) + 1
    stems = {
        word: found
        for word in words
        if not _is_stop_word(word) and (found := find_stems(word, counts))
    }
    return _Terms(stems, counts, len(runbooks))


def find_stems(word: str, known: Mapping[str, int]) -> Mapping[str, float]:
    """Return the known stems of a word with how much each counts; {} for an unknown word."""
    stem = reduce_to_stem(word.lower())
    found = {stem: 1.0} if stem in known else {}
    if not found and word.isalpha() and len(word) > 3:
        found = {one: _SLIP_WEIGHT for one in known if is_one_slip_apart(stem, one)}
    alike = {
        other: _ALIKE_WEIGHT * factor
        for one, factor in (found or {stem: 1.0}).items()
        for other in _find_alike(one)
        if other in known
    }
    return {**alike, **found}


@cache
def _find_alike(stem: str) -> Sequence[str]:
    groups = ([reduce_to_stem(word) for word in group] for group in _ALIKE)
    return [other for group in groups if stem in group for other in group if other != stem]


# --- values ---


def _fit_runbook(
    runbook: type[AnyRunbook], words: Sequence[str], terms: _Terms, host: Host | None
) -> Suggestion | None:
    """Return how well a runbook fits; None if nothing speaks for it."""
    weights = {word: terms.weigh(word, runbook) for word in words}
    if not any(weights.values()) and not any(map(_can_be_typed, words)):
        return None
    assignment = _Assignment(runbook, words, weights, terms)
    if host is not None:
        assignment.assign_host(host)
    assignment.assign_words()
    meant = terms.weigh_all(words, runbook)
    if not meant and not assignment.typed_count:
        return None
    score = meant + assignment.typed_count * _TYPED_VALUE + assignment.placed_count * _PLACED_VALUE
    score += assignment.count_missing() * _MISSING_VALUE
    left = min(len(assignment.left), _MAX_LEFT_WORDS)
    score += assignment.borrowed_count * _BORROWED_VALUE + left * _LEFT_WORD
    return Suggestion(runbook, assignment.values, score)


class _Assignment:
    """Assigns words to the fields of a runbook.

    Args:
        runbook: the runbook.
        words: in the order in which they were typed.
        weights: how much each word speaks for it.
        terms: the words that runbooks have.

    Attributes:
        values: the valid values, by field.
        left: the words that are neither values nor words of the runbook.
        typed_count: the required values whose type accepts no plain word.
        placed_count: the other values that are required, and a host by its tag.
        borrowed_count: the required values that are words of other runbooks.
    """

    def __init__(
        self,
        runbook: type[AnyRunbook],
        words: Sequence[str],
        weights: Mapping[str, float],
        terms: _Terms,
    ) -> None:
        self._runbook, self._weights, self._terms = runbook, weights, terms
        self.values: dict[str, str] = {}
        self.left = [word for word in words if not _is_stop_word(word)]
        self.left += [word for word in words[-1:] if word.lower() == "on"]
        self.typed_count = self.placed_count = self.borrowed_count = 0

    def assign_host(self, host: Host) -> None:
        self.values["host"] = host.name
        self.placed_count += bool(get_required_tag(self._runbook))

    def assign_words(self) -> None:
        """Assign words by the name of a field, by type, and by place."""
        self._assign_named()
        fields = [one for one in list_form_fields(self._runbook) if one.kind != "host"]
        for one in sorted(fields, key=lambda one: not one.required):
            if one.kind == "choice":
                self.placed_count += bool(self._assign_first(one)) and one.required
            elif _is_typed(self._runbook, one.name):
                self.typed_count += bool(self._assign_first(one)) and one.required
        self.left = [word for word in self.left if not self._weights.get(word)]
        for one in fields:
            if one.required and (word := self._assign_first(one)):
                # A word of other runbooks rather means one of those.
                is_borrowed = self._terms.is_known(word)
                self.borrowed_count += is_borrowed
                self.placed_count += not is_borrowed
        for one in fields:
            # Such as bond0: without a digit it is rather a word of the sentence.
            if not one.required and one.lists and one.name not in self.values:
                named = [word for word in self.left if any(map(str.isdigit, word))]
                any(self._assign(one.name, word, word) for word in named)

    def count_missing(self) -> int:
        fields = list_form_fields(self._runbook)
        return sum(one.required and one.name not in self.values for one in fields)

    def _assign_named(self) -> None:
        """Assign `pool=tank`, and `pool tank` unless the second word belongs to the runbook."""
        for word in [*self.left]:
            name, _, value = word.removeprefix("--").partition("=")
            self._assign(name.lower(), value, word)
        for name, value in zip([*self.left], self.left[1:], strict=False):
            if not self._weights.get(value) and self._assign(name.lower(), value, value):
                self.placed_count += 1

    def _assign_first(self, form_field: FormField) -> str:
        """Assign the first word that a field accepts, and return it; "" if there is none."""
        is_choice = form_field.kind == "choice"
        accepted = (
            word
            for word in self.left
            if self._assign(form_field.name, word.lower() if is_choice else word, word)
        )
        return next(accepted, "")

    def _assign(self, name: str, value: str, word: str) -> bool:
        """Assign a value, and take its word from those that are left, if the value is valid."""
        is_open = name in self._runbook.model_fields and name not in {"host", *self.values}
        if not (is_open and value and word in self.left):
            return False
        if not is_value_valid(self._runbook, name, value):
            return False
        self.values[name] = value
        self.left.remove(word)
        return True


@cache
def _is_typed(runbook: type[AnyRunbook], name: str) -> bool:
    """Return whether a field accepts only values of its type, such as addresses or numbers."""
    return not any(is_value_valid(runbook, name, word) for word in _PLAIN_WORDS)


def _can_be_typed(word: str) -> bool:
    """Return whether a word may be a value that says what is meant, such as an address."""
    return bool(word) and not word.isalpha() and not word.isdigit()


def _is_stop_word(word: str) -> bool:
    return not word or word.lower() in _STOP_WORDS
