"""Models of request bodies and queries, with the types of their fields."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
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

from bot.api.auth import Caller
from bot.model import request_form
from bot.model.plain_text import join_to_one_line
from bot.model.request_form import InvalidValuesError
from bot.model.run import RUN_STATUSES, RequestTerms
from bot.model.times import parse_time_zone
from bot.policy import Policy
from bot.signing.sshsig import MAX_LENGTH
from connectors.visible_text import quote_text, refuse_invisible
from runbooks import AnyRunbook, load_catalogue

RunId = Annotated[
    int, Path(ge=1, le=2_147_483_647, description="Its number, which lists return as `id`.")
]
HostName = Annotated[str, Path(description="Name of the host.")]
Text = Annotated[str, StringConstraints(max_length=1000), AfterValidator(refuse_invisible)]
Word = Annotated[
    str, StringConstraints(min_length=1, max_length=100), AfterValidator(refuse_invisible)
]
Reason = Annotated[
    str,
    Field(max_length=1000, description="Recorded in the change log, on one line."),
    AfterValidator(join_to_one_line),
]
Digest = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9a-f]{10,64}$"),
    Field(description="Digest of the plan that you read: at least its first ten digits."),
]
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _require_rfc_3339(value: object) -> object:
    """Reject what pydantic would accept as a time and RFC 3339 does not, such as a number."""
    if isinstance(value, str) and not _RFC_3339.fullmatch(value):
        raise ValueError("write it as 2026-03-01T14:30:00Z")
    return value


def _require_utc(value: datetime) -> datetime:
    """Reject the hours at the ends of the calendar that are in no year in UTC."""
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("must be between the years 1 and 9999 in UTC") from None


Timestamp = Annotated[
    AwareDatetime, BeforeValidator(_require_rfc_3339), AfterValidator(_require_utc)
]


def _check_run_status(value: str) -> str:
    if value not in RUN_STATUSES:
        raise ValueError(f"must be one of {', '.join(RUN_STATUSES)}")
    return value


# A state, or `needs attention` for runs that succeeded and whose report is not healthy.
RunStatus = Annotated[
    str, AfterValidator(_check_run_status), Field(json_schema_extra={"enum": [*RUN_STATUSES]})
]


def to_microseconds(time: datetime | None) -> int | None:
    """Convert a time to microseconds since 1970, as the database stores it."""
    return None if time is None else round(time.timestamp() * 1_000_000)


class InputModel(BaseModel):
    """Base of all bodies and queries. An unknown field is an error, since it has no effect."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RunbookRequestIn(InputModel):
    """A runbook with its values: either a `request` as a command, or `runbook` and `values`.

    `host` is a name, a pattern such as `lb*`, a tag such as `@haproxy`, or several of these
    separated by commas.
    """

    request: Text = Field("", description="As typed in chat, such as `abusers clear lb1`.")
    runbook: Text = Field("", description="Name of the runbook, instead of `request`.")
    values: dict[Word, Text] = Field(
        default_factory=dict[str, str],
        description="With `runbook`: the values of its fields, by name.",
    )

    @model_validator(mode="after")
    def _require_one_form(self) -> "RunbookRequestIn":
        if bool(self.request.strip()) == bool(self.runbook.strip()):
            raise ValueError("give either request, or runbook and values")
        return self

    def parse(self, policy: Policy) -> tuple[str, Sequence[AnyRunbook]]:
        """Return the host pattern ("" for a single host), and one request for each host.

        Raises RequestSyntaxError.
        """
        runbook, words = self._find_runbook()
        return request_form.parse_request_for_hosts(runbook, words, policy.inventory.tags)

    def _find_runbook(self) -> tuple[type[AnyRunbook], Sequence[str]]:
        if self.request.strip():
            return request_form.find_runbook(
                request_form.split_words(self.request.removeprefix("/keyturn").strip())
            )
        name = " ".join(self.runbook.lower().split())
        runbook, _ = request_form.find_runbook(name.split())
        if name not in load_catalogue():
            raise request_form.RequestSyntaxError(
                f"unknown runbook {quote_text(name)}: put the values into `values`"
            )
        unknown = [field for field in self.values if field.lower() not in runbook.model_fields]
        if unknown:
            usage = request_form.format_usage(runbook)
            raise InvalidValuesError(
                name, dict.fromkeys(unknown, f"unknown field; the usage is {usage}")
            )
        return runbook, [f"{field}={value}" for field, value in self.values.items()]


def _check_time_zone(name: str) -> str:
    parse_time_zone(name)
    return name


TimeZoneName = Annotated[
    str,
    AfterValidator(_check_time_zone),
    Field(max_length=60, description="Time zone of days and hours, such as Europe/Paris."),
]


TicketKey = Annotated[
    str,
    Field(
        max_length=64,
        description="Change ticket, such as CHG0030001, where a rule of the policy has @ticket.",
    ),
]


class RunRequestIn(RunbookRequestIn):
    """A request for a run, with its reason."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"request": "abusers clear lb1 203.0.113.9", "reason": "ticket 4711"},
                {
                    "runbook": "abusers clear",
                    "values": {"host": "lb*", "address": "203.0.113.9"},
                },
            ]
        }
    )

    reason: Reason = ""
    guard_override: Annotated[
        str,
        Field(
            max_length=400,
            description="Cut set that the redundancy guard refused and that this run may take "
            "down all the same, such as `shop: lb1, lb2`; for one host, with a reason.",
        ),
    ] = ""
    ticket: TicketKey = ""

    def build_terms(self, caller: Caller) -> RequestTerms:
        return RequestTerms(
            caller.id,
            caller.origin,
            self.reason,
            guard_override=self.guard_override,
            ticket=self.ticket,
        )


class ApprovalIn(InputModel):
    """An approval of the plan with this digest."""

    digest: Digest
    reason: Reason = ""
    signature: str = Field(
        "",
        max_length=MAX_LENGTH,
        description="Where `requires_signature`: of `ssh-keygen -Y sign -n keyturn-plan` over the "
        "document of the plan.",
    )
    start_at: Timestamp | None = Field(
        None, description="The earliest start; null for as soon as possible."
    )


class SignatureIn(InputModel):
    """A signature over the plan with this digest."""

    digest: Digest
    signature: str = Field(
        max_length=MAX_LENGTH,
        description="Of `ssh-keygen -Y sign -n keyturn-plan` over the document of the plan.",
    )


class ReasonIn(InputModel):
    """The reason of an action."""

    reason: Reason = ""


class DenialIn(InputModel):
    """Why a request is denied."""

    reason: Annotated[Reason, Field(min_length=1)]


class RepeatIn(ReasonIn):
    """The reason and the change ticket of a new run like an earlier one."""

    ticket: TicketKey = ""

    def build_terms(self, caller: Caller) -> RequestTerms:
        return RequestTerms(caller.id, caller.origin, self.reason, ticket=self.ticket)


class UndoIn(RepeatIn):
    """The reason of an undo, or of restoring a value."""

    plan_only: bool = Field(
        default=False, description="Only plan it; `POST /runs/{number}/request` requests it."
    )

    def build_terms(self, caller: Caller) -> RequestTerms:
        return replace(super().build_terms(caller), plan_only=self.plan_only)


class ResolutionIn(InputModel):
    """The outcome of a run with an unknown outcome, as an owner determined it on the host."""

    succeeded: bool = Field(description="Whether the step had its effect on the host.")
    reason: Annotated[
        str,
        Field(min_length=10, max_length=1000, description="How you know the outcome."),
        AfterValidator(join_to_one_line),
    ]


class ReviewIn(InputModel):
    """The findings of a review of emergency access."""

    findings: Annotated[
        str,
        Field(
            min_length=10,
            max_length=1000,
            description="Whether the emergency and the change were justified, and why.",
        ),
        AfterValidator(join_to_one_line),
    ]


class CounterProposalIn(InputModel):
    """Other values for a run, by field."""

    values: dict[Word, Text] = Field(
        min_length=1, description="The values to change, by field; other values stay."
    )
    reason: Reason = ""


class QuestionIn(InputModel):
    """A question about a run, or the answer."""

    text: Annotated[Reason, Field(min_length=1)]


class ReassignmentIn(ReasonIn):
    """The approver who is asked first to decide a run."""

    person: Word = Field(description="Id of a person who can approve the run.")


class AcceptanceIn(InputModel):
    """The plan of the counter-proposal that the requester accepts."""

    digest: Digest
