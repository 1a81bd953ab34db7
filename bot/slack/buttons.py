"""Buttons below answers: they open a filled form, or show what a command would. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from bot.slack.aliases import COMMAND
from bot.slack.blocks import Element, button, shorten_text

# Opens the form of the runbook that its value names.
FORM_ACTION = "ask"
# In place of a runbook: opens the choice of all of them, for the host behind it if there is one.
ANY_RUNBOOK = "anything"
# Shows what the command that its value holds would show.
READ_ACTION = "read"
# Opens the form of the command that its value holds.
COMMAND_ACTION = "command"
# Asks the administrators to add the person.
ASK_ACCESS = "ask-access"
# The commands that change nothing, so that a click or a message in plain words may run them.
_READING_WORDS = frozenset({"help", "runs", "run", "changed", "who", "can-i", "handover"})
# Commands that show one thing, or all of a kind, if at most a number follows.
_SHOWING_WORDS = frozenset({"grant", "grants"})
# That of a command begins with what its form asks for, and the text of the button.
MAX_VALUE_LENGTH = 1900
_MAX_TEXT_LENGTH = 60


def is_reading(command: str, showing: Collection[str] = ()) -> bool:
    """Return whether a command changes nothing. showing: the words of features that show."""
    word, _, rest = command.partition(" ")
    shows = word in _SHOWING_WORDS or word in showing
    return word in _READING_WORDS or (shows and (not rest or rest.isdecimal()))


def build_form_button(text: str, typed: str, *, n: int = 0, main: bool = False) -> Element:
    """Return a button that opens the form of a typed request, with its values."""
    built = button(
        shorten_text(text, _MAX_TEXT_LENGTH),
        action=f"{FORM_ACTION}-{n}",
        value=typed,
        label=f"Open the form of {typed}",
    )
    return built | ({"style": "primary"} if main else {})


def build_chooser_button(text: str, *, host: str = "", n: int = 0) -> Element:
    """Return a button that opens the choice of a runbook."""
    value = f"{ANY_RUNBOOK} {host}".strip()
    return button(text, action=f"{FORM_ACTION}-{n}", value=value, label=text)


def build_read_button(text: str, command: str, *, n: int = 0) -> Element:
    """Return a button that shows what a command would show."""
    return button(text, action=f"{READ_ACTION}-{n}", value=command, label=f"{COMMAND} {command}")


def fits_button(typed: Iterable[str]) -> bool:
    """Return whether each typed request fits into a button."""
    return all(len(one) <= MAX_VALUE_LENGTH for one in typed)


class Missing(StrEnum):
    """What the form of a command asks for."""

    NOTHING = "n"
    REASON = "r"
    TIME_AND_REASON = "t"


@dataclass(frozen=True)
class CommandButton:
    """A button that opens the form of a command."""

    text: str
    """What it does: `Adopt`."""
    command: str
    """Behind /keyturn: `drift adopt 7`. The form begins with a reason in it."""
    missing: Missing = Missing.REASON

    def build(self, *, n: int = 0) -> Element:
        """Return the button. n: its number among those of a message."""
        return button(
            f"{self.text}…",
            action=f"{COMMAND_ACTION}-{n}",
            value=f"{self.missing}:{self.text}:{self.command}",
            label=f"{self.text}: {COMMAND} {self.command}",
        )


def parse_command_button(value: str) -> CommandButton:
    """Return the button of a value. Raises ValueError."""
    missing, text, command = value.split(":", 2)
    return CommandButton(text, command, Missing(missing))
