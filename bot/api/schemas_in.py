"""What callers give: values that are checked at the door, and the requests that they mean."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import Path
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from bot.model import request_form
from bot.model.plain_text import join_to_one_line
from bot.model.request_form import InvalidValuesError
from bot.model.run import RUN_STATUSES
from bot.policy import Policy
from connectors.command import quote_text, refuse_invisible
from runbooks import AnyRunbook, load_catalogue

Number = Annotated[int, Path(ge=1, le=2_147_483_647)]
Text = Annotated[str, StringConstraints(max_length=1000), AfterValidator(refuse_invisible)]
Word = Annotated[
    str, StringConstraints(min_length=1, max_length=100), AfterValidator(refuse_invisible)
]
Reason = Annotated[
    str,
    Field(max_length=1000, description="Kept in the change log, on one line."),
    AfterValidator(join_to_one_line),
]
Digest = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9a-f]{10,64}$"),
    Field(description="Of the plan that you saw: all of it, or its first ten digits or more."),
]
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _written(value: object) -> object:
    """Take nothing for a moment but what RFC 3339 calls one: a bare number is none."""
    if isinstance(value, str) and not _MOMENT.fullmatch(value):
        raise ValueError("write it as 2026-03-01T14:30:00Z")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_written)]


def _standing(value: str) -> str:
    if value not in RUN_STATUSES:
        raise ValueError(f"must be one of {', '.join(RUN_STATUSES)}")
    return value


# A state, or `needs attention`: of those that succeeded, only those whose report is not well.
Standing = Annotated[
    str, AfterValidator(_standing), Field(json_schema_extra={"enum": [*RUN_STATUSES]})
]


def micros(given: datetime | None) -> int | None:
    """Return it as the store keeps times."""
    return None if given is None else round(given.timestamp() * 1_000_000)


class Given(BaseModel):
    """A body. What is not known is refused, for whoever sends it means something by it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Wish(Given):
    """A request: either `words` as one would type them, or a `runbook` and its `values`.

    Hosts are one, a pattern such as `lb*`, all with a tag (`@haproxy`), or several of these with
    commas between.
    """

    words: Text = ""
    runbook: Text = ""
    values: dict[Word, Text] = Field(default_factory=dict[str, str])

    @model_validator(mode="after")
    def _one_way(self) -> "Wish":
        if bool(self.words.strip()) == bool(self.runbook.strip()):
            raise ValueError("give either words, or runbook and values")
        return self

    def understood(self, policy: Policy) -> tuple[str, Sequence[AnyRunbook]]:
        """Return how several hosts were spelled, and a request for each. Raises NotUnderstood."""
        runbook, typed = self._typed()
        return request_form.parse_request_for_hosts(runbook, typed, policy.inventory.tags)

    def _typed(self) -> tuple[type[AnyRunbook], Sequence[str]]:
        if self.words.strip():
            return request_form.find_runbook(
                request_form.split_words(self.words.removeprefix("/keyturn").strip())
            )
        words = " ".join(self.runbook.lower().split())
        runbook, _ = request_form.find_runbook(words.split())
        if words not in load_catalogue():
            raise request_form.RequestSyntaxError(
                f"there is no runbook {quote_text(words)}: values go into `values`"
            )
        strange = [name for name in self.values if name.lower() not in runbook.model_fields]
        if strange:
            usage = request_form.format_usage(runbook)
            raise InvalidValuesError(
                words, dict.fromkeys(strange, f"is no field. It is typed {usage}")
            )
        return runbook, [f"{name}={value}" for name, value in self.values.items()]


class Order(Wish):
    """A request, and why. dry: only say what would come of it; nothing is recorded or read."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"words": "abusers clear lb1 203.0.113.9", "reason": "ticket 4711"},
                {
                    "runbook": "abusers clear",
                    "values": {"host": "lb*", "address": "203.0.113.9"},
                    "dry": True,
                },
            ]
        }
    )

    reason: Reason = ""
    dry: bool = False


class Approval(Given):
    digest: Digest
    reason: Reason = ""


class Because(Given):
    reason: Reason = ""


class Repeat(Because):
    """Why the same is asked for again. dry: only say what would come of it, as of a request."""

    dry: bool = False


class Ending(Given):
    """How an unknown run ended, as an owner found it on the host. why: how they know."""

    succeeded: bool
    why: Annotated[str, Field(min_length=10, max_length=1000), AfterValidator(join_to_one_line)]


class Review(Given):
    """What somebody else found when they looked at it."""

    words: Annotated[str, Field(min_length=10, max_length=1000), AfterValidator(join_to_one_line)]


class Counter(Given):
    """Other values for a run, by field."""

    values: dict[Word, Text] = Field(min_length=1)
    reason: Reason = ""


class Acceptance(Given):
    digest: Digest


class ScheduleOrder(Wish):
    """A request that is to be done again and again; see `keyturn schedule add --help`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "words": "uptime check lb1",
                    "name": "a look every month",
                    "cron": "0 3 1 * *",
                    "zone": "Europe/Amsterdam",
                }
            ]
        }
    )

    name: Word
    cron: Word
    zone: Word = "UTC"
    overlap: Word = Field("skip", description="skip, queue or cancel")
    catch_up: Word = Field("skip", description="skip, once, or how many at most")
    spread: int = Field(0, ge=0, le=99_999, description="Minutes.")
    tell: Word = Field("changes", description="changes or always")
    reason: Reason = ""

    @property
    def settings(self) -> dict[str, str]:
        return {
            "cron": self.cron,
            "zone": self.zone,
            "overlap": self.overlap,
            "catch-up": self.catch_up,
            "spread": str(self.spread),
            "tell": self.tell,
        }
