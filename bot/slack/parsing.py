"""Parse what people type behind the slash command, without Slack's markup. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bot.model.errors import InvalidRequestError
from bot.model.run import RequestOrigin, RequestTerms
from bot.model.view_rights import ViewRights
from bot.model.word_forms import is_one_slip_apart
from bot.policy import Policy
from bot.slack.replies import format_command_usage

# https://docs.slack.dev/messaging/formatting-message-text: <@U1|ann>, <#C1|ops>, <http://x|x>
_WRAPPED_PATTERN = re.compile(r"<([@#!]?)([^<>|]*)(?:\|([^<>]*))?>")
_MENTION_PATTERN = re.compile(r"<@([UW][A-Z0-9]{1,20})(?:\|[^<>]*)?>")
# Names the change ticket, among the words of a request.
_TICKET = "ticket="
# Before it, a comma or a dash is punctuation; a hyphen only behind a space.
_REASON_PATTERN = re.compile(r"(?:^|[\s,;:–—]|(?<=\s)-)+because\s+(?=\S)", re.IGNORECASE)
_REASON_WORD, _REASON_SHORTHANDS = "because", frozenset({"bc", "cuz"})
_DASHES = frozenset({"-", "–", "—", "--"})
_SENTENCE_ENDS = ".,;:!?"
# After a mention: `@Keyturn: …`
_ADDRESS_ENDS = f"{_SENTENCE_ENDS}-–— "
_GREETINGS = frozenset(
    (
        *("hi", "hello", "hey", "hola", "moin", "yo", "hi there", "hello there", "who are you"),
        *("help", "help me", "menu", "start", "what can you do", "what can i do"),
    )
)


@dataclass(frozen=True)
class TypedText:
    """What was typed, split at the word "because"."""

    command_words: str
    """Before "because", as typed."""
    reason: str = ""
    """After "because"."""
    text: str = field(default="", compare=False)
    """All of it, as typed."""

    @property
    def first_word(self) -> str:
        first = (self.command_words.split(None, 1) or [""])[0].lower()
        return first.rstrip(_SENTENCE_ENDS) or first

    @property
    def words_after_first(self) -> str:
        return " ".join(self.command_words.split(None, 1)[1:]).strip()

    @property
    def text_after_first(self) -> str:
        """All that was typed behind the first word, with its reason."""
        return " ".join(self.text.split(None, 1)[1:]).strip()

    @property
    def is_greeting(self) -> bool:
        """Whether the text only asks what Keyturn is for: nothing, `?`, `hi` or `help`."""
        plain = self.text.lower().strip(f"{_SENTENCE_ENDS} /")
        return plain in {"", *_GREETINGS}

    def find_reason_slip(self) -> "TypedText":
        """Split at a word that was meant to be "because", or at a dash, if there is no reason."""
        if self.reason:
            return self
        words = self.command_words.split()
        for n, word in enumerate(words):
            plain = word.lower().strip(_SENTENCE_ENDS)
            is_reason = plain in _REASON_SHORTHANDS or is_one_slip_apart(plain, _REASON_WORD)
            if n and (is_reason or word in _DASHES):
                after = words[n + 1 :]
                return replace(self, command_words=" ".join(words[:n]), reason=" ".join(after))
        return self


@dataclass(frozen=True)
class TypedCommand:
    """A command with the person who typed it."""

    person: str
    policy: Policy
    """The policy in which the person was found."""
    origin: RequestOrigin
    typed_text: TypedText
    zone: str = "UTC"
    """The time zone in which Slack shows times to the person."""

    @property
    def view_rights(self) -> ViewRights:
        """What the person may view."""
        return self.policy.get_view_rights(self.person)

    @property
    def rest(self) -> str:
        """What was typed behind the first word, without the reason."""
        return self.typed_text.words_after_first

    @property
    def reason(self) -> str:
        return self.typed_text.reason

    @property
    def text_after_word(self) -> str:
        """All that was typed behind the first word, with its reason."""
        return self.typed_text.text_after_first

    def build_terms(self, *, ticket: str = "", plan_only: bool = False) -> RequestTerms:
        """Return the terms of a request with the reason that was typed."""
        return RequestTerms(
            self.person, self.origin, self.reason, ticket=ticket, plan_only=plan_only
        )

    @property
    def word(self) -> str:
        """The first word."""
        return self.typed_text.first_word

    def parse_run_number(self) -> tuple[int, str]:
        """Return the number of a run behind the first word, and the text behind that."""
        return parse_run_number(self.rest, self.word)


def split_ticket(words: Sequence[str]) -> tuple[list[str], str]:
    """Return the words without `ticket=KEY`, and the change ticket that it names, or ""."""
    named = [word for word in words if word.lower().startswith(_TICKET)]
    others = [word for word in words if word not in named]
    return others, "".join(word[len(_TICKET) :] for word in named)


def parse_number(typed: str) -> int | None:
    """Parse `7` or `#7`; return None for other text."""
    digits = typed.strip().rstrip(_SENTENCE_ENDS).removeprefix("#")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= 9
    return int(digits) if is_number else None


def parse_run_number(typed: str, command_word: str) -> tuple[int, str]:
    """Return the number of a run and the text behind it.

    Raises InvalidRequestError with the usage of the command if there is no number.
    """
    first, rest = [*typed.split(maxsplit=1), "", ""][:2]
    number = parse_number(first)
    if number is None:
        usage = format_command_usage(command_word)
        raise InvalidRequestError(f"the run number is missing: type {usage}")
    return number, rest.strip()


def replace_mentions(text: str, person_ids: Mapping[str, str]) -> str:
    """Replace each mention by the person's id. person_ids: by Slack user.

    The label of a mention is not used: the person it names can change it.
    """
    return _MENTION_PATTERN.sub(lambda found: f"@{person_ids.get(found[1], found[1])}", text)


def get_text_of_mention(text: str) -> str:
    """Return what follows the first mention on one line, or what precedes it if it is last."""
    found = _MENTION_PATTERN.search(text)
    rest = text[found.end() :].strip(_ADDRESS_ENDS) or text[: found.start()] if found else text
    return " ".join(rest.split())


def parse_typed_text(text: str) -> TypedText:
    """Split off the reason of a text with Slack's markup."""
    return split_reason(unwrap_text(text))


def split_reason(text: str) -> TypedText:
    """Split off the reason, which may contain quotation marks and any visible character."""
    parts = _REASON_PATTERN.split(text, maxsplit=1)
    reason = parts[1].strip() if len(parts) > 1 else ""
    return TypedText(parts[0].strip(), reason, text.strip())


def unwrap_text(text: str) -> str:
    """Remove the angle brackets in which Slack wraps links and names."""
    plain = _WRAPPED_PATTERN.sub(_unwrap_match, text)
    # The ampersand last: "&amp;lt;" was typed "&lt;".
    return plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _unwrap_match(wrapped: re.Match[str]) -> str:
    mark, target, label = wrapped[1], wrapped[2], wrapped[3]
    if mark in {"@", "#"}:
        return mark + (label or target)
    return label or target.removeprefix("mailto:")
