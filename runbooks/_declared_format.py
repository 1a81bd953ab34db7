"""The format of a declared runbook: what a page of YAML may hold. Pure.

The models are the format: pages are checked with them, and `keyturn runbook schema` prints their
JSON Schema for editors.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

# Each name of a page takes memory for all that may use it.
_MOST_PARTS = 100
_MOST_FIELDS = 30
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
Cel = Annotated[
    StrictStr, Field(min_length=1, max_length=1000, description="An expression in CEL.")
]
Words = Annotated[
    StrictStr,
    Field(min_length=1, max_length=4000, description="A text; CEL in braces is replaced."),
]
Cell = Annotated[StrictStr, Field(max_length=4000)]
Word = StrictStr | StrictInt
FieldType = Literal[
    "number", "choice", "text", "address", "time", "service", "pool", "dataset", "interface",
    "bond", "agent"
]  # fmt: skip


class Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True
    )


class FieldPart(Part):
    """One value of the request."""

    type: FieldType = "text"
    """What it is. The types with the name of a thing accept what such things are called."""
    description: StrictStr = ""
    """What it is for, in forms and help."""
    title: StrictStr = ""
    """Its label in forms."""
    least: StrictInt | None = None
    """Of a number: the smallest one."""
    most: StrictInt | None = None
    """Of a number: the largest one."""
    values: list[Word] = Field(default_factory=list[Word])
    """Of a choice: its values."""
    pattern: StrictStr = ""
    """Of a text: the regular expression that all of it must match."""
    default: Word | None = None
    """Its value if none is given."""
    optional: StrictBool = False
    """Whether it may be left out, and is null then."""
    lists: StrictStr = ""
    """What the host lists as its values in forms, such as pools or services."""
    within: list[Name] = Field(default_factory=list[str])
    """Other fields that such a list depends on."""


class HostPart(Part):
    """The host of the request."""

    tag: StrictStr = ""
    """The tag that hosts must have."""


class CommandPart(Part):
    """One command, as words, as a function of a connector, or as a script."""

    run: list[Word] = Field(default_factory=list[Word], max_length=60)
    """The program and its arguments, one word each. {name} is replaced by a value."""
    command: StrictStr = ""
    """A command that comes with Keyturn, such as nfsd.set_threads."""
    given: dict[Name, Word] = Field(default_factory=dict[str, Word], alias="with")
    """The arguments of `command`: expressions in CEL, by name."""
    script: StrictStr = Field(default="", max_length=8000)
    """Lines for /bin/sh, which get their values as $1, $2 …"""
    arguments: list[Word] = Field(default_factory=list[Word], max_length=20)
    """The arguments of `script`, one word each."""
    stdin: StrictStr = Field(default="", max_length=8000)
    """What the program reads from standard input. {name} is replaced by a value."""
    root: StrictBool = False
    """Whether root runs it, with a sudo rule for it alone."""
    seconds: StrictInt = Field(default=30, ge=1, le=3600)
    """After which the host stops it."""


class ReasonPart(Part):
    """A condition, and why the request is refused if it is true."""

    when: Cel
    because: Words
    """What is wrong, then what to do."""


class ReadPart(Part):
    """One thing that is read from the host."""

    file: StrictStr = ""
    """The path of a file."""
    run: list[Word] = Field(default_factory=list[Word], max_length=60)
    """A program that only reads, and its arguments, one word each."""
    query: StrictStr = ""
    """A query that comes with Keyturn, such as systemd.query_service."""
    given: dict[Name, Word] = Field(default_factory=dict[str, Word], alias="with")
    """The arguments of `query`: expressions in CEL, by name."""
    root: StrictBool = False
    """Whether root runs it, with a sudo rule of the login that only reads."""
    statuses: list[StrictInt] = Field(default=[0], min_length=1)
    """Exit statuses of success."""
    when: Cel = "true"
    """Whether it is read; it is null if not."""
    may_fail: StrictBool = False
    """Of a check: whether the rest is reported if it fails. It is null then, and a finding."""
    title: StrictStr = ""
    """What that finding calls it, such as `the peers`. Its name by default."""
    refuse: list[ReasonPart] = Field(default_factory=list[ReasonPart], max_length=_MOST_PARTS)
    """When the request makes no sense on this host. Nothing after it is read then."""
    parse: Literal["", "text", "number", "match", "lines", "table", "pairs", "json"] = Field(
        default="", alias="as"
    )
    """How its output is read. text: all of it. number: a whole number. match: the named groups of
    `pattern` in all of it. lines: those of each line. table: `columns` of each line. pairs: a
    value for each key. json: the value at `path`."""
    pattern: StrictStr = Field(default="", max_length=500)
    """The regular expression of text, match or lines."""
    columns: list[Name] = Field(default_factory=list[str], max_length=40)
    """The names of the columns of a table; the last one takes the rest of its line."""
    numbers: list[Name] = Field(default_factory=list[str])
    """The groups or columns that are whole numbers."""
    skip: StrictInt = Field(default=0, ge=0, le=100)
    """Lines before the first row."""
    separator: StrictStr = Field(default="", max_length=10)
    """What is between columns, or between key and value (=). Blanks by default."""
    path: StrictStr = Field(default="", max_length=200)
    """Where in a JSON document the value is, such as filesystems.0.options."""
    least: StrictInt | None = None
    """The smallest number that is believed."""
    most: StrictInt | None = None
    """The largest number that is believed."""


class StatePart(Part):
    """A value computed from what was read, which a command may hold."""

    value: Cel
    pattern: StrictStr = Field(default="", max_length=500)
    """What a text must match."""
    least: StrictInt | None = None
    """The smallest number."""
    most: StrictInt | None = None
    """The largest number."""


class NotePart(Part):
    """A sentence that is shown if its condition is true, or once for each row."""

    text: Words
    when: Cel = "true"
    each: Cel | None = None
    """A list: the sentence is for each value of it for which `when` is true, named `row`."""


class StepPart(Part):
    """One command on the host, with its undo."""

    title: Words
    """What it does, in the imperative."""
    when: Cel
    """Whether it is still needed. It must be false once the change is in effect."""
    do: CommandPart
    """The command."""
    undo: CommandPart | None = None
    """The command that restores what was before."""
    no_undo: Words | None = None
    """Why it cannot be undone, as a clause."""
    before: Words | None = None
    """The value that it changes, without what moves by itself, such as a counter."""
    after: Words | None = None
    """The value after it."""
    undo_title: StrictStr = ""
    """The title of the undo, if it is more than this step in reverse."""


class ProbationPart(Part):
    """What the host saves before the change, and restores unless the change is confirmed."""

    of: StrictStr = ""
    """A probation that comes with Keyturn, such as conntrack or csf_entry.make_probation."""
    given: dict[Name, Word] = Field(default_factory=dict[str, Word], alias="with")
    """The arguments of such a function: expressions in CEL, by name."""
    name: StrictStr = Field(default="", pattern=r"^([a-z]+(-[a-z]+)*)?$")
    """Of an own one: its name, one word."""
    restore: StrictStr = Field(default="", max_length=8000)
    """Lines for /bin/sh that save if $1 is save, and restore if it is restore."""
    seconds: StrictInt = Field(default=120, ge=90, le=9999)
    """After which the host restores. The inventory may set another time."""


class RowPart(Part):
    """Rows of the table."""

    cells: list[Cell] = Field(min_length=1, max_length=12)
    """One text for each column."""
    when: Cel = "true"
    each: Cel | None = None
    """A list: a row for each value of it for which `when` is true, named `row`."""


class TablePart(Part):
    columns: list[StrictStr] = Field(min_length=1, max_length=12)
    """The headings."""
    named: list[StrictStr] = Field(default_factory=list[str])
    """The first cells, where no others occur."""
    rows: list[RowPart] = Field(min_length=1, max_length=_MOST_PARTS)
    """In order."""


class ReportPart(Part):
    """What a check says."""

    summary: Words
    """One sentence that is complete without the rest."""
    findings: list[NotePart] = Field(default_factory=list[NotePart], max_length=_MOST_PARTS)
    """What a person should act on: with one, the check needs attention."""
    notes: list[NotePart] = Field(default_factory=list[NotePart], max_length=_MOST_PARTS)
    """What needs no action."""
    table: TablePart | None = None
    """The details."""


class RunbookPage(Part):
    """A declared runbook."""

    schema_line: StrictStr = Field(default="", alias="$schema")
    """Where editors find the schema of the page."""
    words: StrictStr = Field(pattern=r"^[a-z][a-z0-9]*( [a-z][a-z0-9]*){0,3}$")
    """Its command: one to four words of lower-case letters and digits."""
    sentence: StrictStr = Field(min_length=1, max_length=200)
    """What it is for, in one sentence."""
    also_called: list[StrictStr] = Field(default_factory=list[str])
    """Other words for it, by which searches and plain requests find it."""
    examples: list[StrictStr] = Field(min_length=1)
    """Values as they are typed after the words. Help shows the first."""
    host: HostPart = HostPart()
    """The field `host`, which every runbook has."""
    fields: dict[Name, FieldPart] = Field(
        default_factory=dict[str, FieldPart], max_length=_MOST_FIELDS
    )
    """The other values of a request."""
    never: list[ReasonPart] = Field(default_factory=list[ReasonPart], max_length=_MOST_PARTS)
    """Requests that are refused by their values alone."""
    read: dict[Name, ReadPart] = Field(min_length=1, max_length=_MOST_PARTS)
    """What is read from the host, in order."""
    state: dict[Name, Cel | StatePart] = Field(
        default_factory=dict[str, Cel | StatePart], max_length=_MOST_PARTS
    )
    """Values computed from what was read, in order."""
    report: ReportPart | None = None
    """Of a check."""
    verifies_tag: StrictBool = False
    """Of a check: whether it shows that a host has what its tag promises."""
    current_state: Words | None = None
    """Of a change: what was read, as one sentence without a full stop."""
    refuse: list[ReasonPart] = Field(default_factory=list[ReasonPart], max_length=_MOST_PARTS)
    """When a change with steps left is refused."""
    steps: list[StepPart] = Field(default_factory=list[StepPart], max_length=20)
    """Of a change."""
    undo: StrictStr = ""
    """What the undo does, in a few words; nothing if it cannot be undone."""
    sets: StrictStr = ""
    """What the change gives a lasting value, with the fields that identify it in braces."""
    takes_down: list[Words] | None = None
    """What may be down while a change runs: [], ["{host}"] or ["{host}/nginx"]."""
    probation: ProbationPart | None = None
    """Of a change that can lock Keyturn or people out of the host."""
    notes: list[NotePart] = Field(default_factory=list[NotePart], max_length=_MOST_PARTS)
    """What an approver should also know."""
    minutes: StrictInt | None = Field(default=None, ge=1, le=1440)
    """The shortest interval of a schedule."""
