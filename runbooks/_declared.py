"""Declared runbooks: a page of YAML becomes a class like any other runbook.

A page is data. It names what is read, what that means and which commands lead from it to what was
requested; docs/runbook-format.md has the format. Nothing of it is executed: conditions and texts
are CEL, commands are words, and readings use only programs that are known to read.

The class is in a module of its own, whose file is the page. Its connectors are those that the page
names, and one that has the sudo rules of its own commands.
"""

import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType, new_class
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import ConfigDict, Field, ValidationError, model_validator

from connectors import probation
from connectors.command import Query, QueryRunner, Setting, Shell
from connectors.errors import HostError, ParseError
from connectors.probation import Probation
from connectors.sudo import SudoRule
from runbooks import _declared_cel as cel
from runbooks import _declared_commands as commands
from runbooks import _fields
from runbooks._declared_cel import Expression, Scope, Text
from runbooks._declared_commands import Command, Value, Values
from runbooks._declared_format import (
    CommandPart,
    FieldPart,
    NotePart,
    ProbationPart,
    ReadPart,
    ReasonPart,
    RowPart,
    RunbookPage,
    StatePart,
    TablePart,
)
from runbooks._declared_parsers import make_parser
from runbooks._declared_reads import refuse_change
from runbooks._declared_yaml import Page, PageError, read_page
from runbooks._lists import LISTS
from runbooks._parts import READ_ERRORS
from runbooks._plan import Leg, NoUndo, Plan, Refused, Report, Step, Table
from runbooks._runbook import AnyRunbook, Change, Check, Runbook

SUFFIX = ".yaml"
_NAMED_TYPES: Mapping[str, Any] = {
    "address": _fields.Address,
    "agent": _fields.AgentName,
    "bond": _fields.BondName,
    "dataset": _fields.DatasetName,
    "interface": _fields.InterfaceName,
    "pool": _fields.PoolName,
    "service": _fields.ServiceName,
    "time": _fields.Instant,
}
_HOST_VALUE = commands.make_pattern_value(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_MESSAGES = {
    "missing": "is missing: add it",
    "extra_forbidden": "is not a key of this part: check the spelling",
    "string_type": "must be a text: put it into quotation marks",
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
    "list_type": "must be a list: begin each of its lines with -",
    "dict_type": "must be a mapping: write `key: value` on each of its lines",
    "model_type": "must be a mapping: write `key: value` on each of its lines",
    "literal_error": "must be one of {expected}",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    "string_too_long": "has more than {max_length} characters: shorten it",
    "too_long": "has more than {max_length} items: split the runbook",
    "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less",
}


@dataclass(frozen=True)
class FailedReading:
    """A reading that may fail, and did."""

    finding: str
    error: HostError


@dataclass(frozen=True)
class _Rows:
    """Texts that are shown if a condition is true, or for each value of a list."""

    texts: tuple[Text, ...]
    when: Expression
    each: Expression | None

    def render(self, values: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
        rows = [values]
        if self.each is not None:
            rows = [{**values, "row": row} for row in self.each.evaluate(values)]
        for scope in rows:
            if self.when.is_true(scope):
                yield tuple(text.render(scope) for text in self.texts)


def _render_notes(notes: Sequence[_Rows], values: Values) -> list[str]:
    return [text for note in notes for (text,) in note.render(values.plain)]


_Reason = tuple[Expression, Text]


def _refuse(reasons: Sequence[_Reason], values: Values) -> None:
    for when, because in reasons:
        if when.is_true(values.plain):
            raise Refused(because.render(values.plain))


# Reads something of a host with these values. Raises HostError.
_Read = Callable[[QueryRunner, str, Values], Any]


@dataclass(frozen=True)
class _Reading:
    read_host: _Read
    when: Expression
    may_fail: bool
    title: str
    refuse: "Sequence[_Reason]"

    def read(self, run_query: QueryRunner, host: str, values: Values) -> Any:
        if not self.when.is_true(values.plain):
            return None
        try:
            return self.read_host(run_query, host, values)
        except READ_ERRORS as error:
            if not self.may_fail:
                raise
            return FailedReading(f"{self.title} could not be read: {error}", error)


@dataclass(frozen=True)
class _State:
    value: Expression
    check: Value

    def compute(self, name: str, values: Values) -> Any:
        result = self.value.evaluate(values.plain)
        if self.check.pattern:
            self.check.format(name, result)
        return result


@dataclass(frozen=True)
class _Step:
    title: Text
    when: Expression
    do: Command
    undo: Command | None
    no_undo: Text
    before: Text
    after: Text
    undo_title: str

    def make(self, host: str, values: Values) -> Step:
        undo = self.undo.make(values) if self.undo else NoUndo(self.no_undo.render(values.plain))
        return Step(
            self.title.render(values.plain),
            host,
            do=self.do.make(values),
            undo=undo,
            before=self.before.render(values.plain),
            after=self.after.render(values.plain),
            undo_title=self.undo_title,
        )


@dataclass
class Declaration:
    """A page, checked and ready to be used."""

    page: RunbookPage
    readings: dict[str, _Reading]
    state: dict[str, _State]
    never: list[_Reason]
    refuse: list[_Reason]
    steps: list[_Step]
    current_state: Text
    notes: list[_Rows]
    takes_down: list[Text]
    probation: Callable[[Values], Probation] | None
    summary: Text
    findings: list[_Rows]
    report_notes: list[_Rows]
    rows: list[_Rows]
    connectors: dict[str, ModuleType]
    rules: list[SudoRule]
    times: frozenset[str]
    """The names that are times in expressions. Any other time is a text there."""


class _Declared(Runbook[Any]):
    # Most of the time of a start would be spent on forms that no one opens.
    model_config = ConfigDict(defer_build=True)
    source: ClassVar["PageSource"]

    @property
    def declaration(self) -> Declaration:
        return self.source.declaration

    @model_validator(mode="after")
    def _refuse_never(self) -> "_Declared":
        values = self._get_request()
        for when, because in self.declaration.never:
            if when.is_true(values.plain):
                raise ValueError(because.render(values.plain))
        return self

    def read(self, run_query: QueryRunner) -> Any:
        found = dict(self.iterate_readings(run_query))
        failed = [each for each in found.values() if isinstance(each, FailedReading)]
        if failed and len(failed) == len(found):
            raise failed[0].error
        return tuple(found.values()) if len(found) > 1 else next(iter(found.values()))

    def iterate_readings(self, run_query: QueryRunner) -> Iterator[tuple[str, Any]]:
        """Yield each reading with its value. Raises HostError and Refused."""
        values = self._get_request()
        for name, reading in self.declaration.readings.items():
            value = reading.read(run_query, self.target, values)
            values = self._add(values, name, value)
            yield name, value
            _refuse(reading.refuse, values)

    def _get_request(self) -> Values:
        raw = {name: getattr(self, name) for name in type(self).model_fields}
        return Values(raw, {name: self._make_plain(name, value) for name, value in raw.items()})

    def _make_plain(self, name: str, value: Any) -> Any:
        if name in self.declaration.times:
            return value
        return None if isinstance(value, FailedReading) else cel.make_plain(value)

    def _add(self, values: Values, name: str, value: Any) -> Values:
        plain = {**values.plain, name: self._make_plain(name, value)}
        return Values({**values.raw, name: value}, plain)

    def _get_values(self, state: Any) -> Values:
        """Return every value: of the request, of what was read, and of `state`."""
        declaration = self.declaration
        names = list(declaration.readings)
        found = cast("tuple[object, ...]", state) if len(names) > 1 else (state,)
        values = self._get_request()
        for name, value in zip(names, found, strict=True):
            values = self._add(values, name, value)
        for name, each in declaration.state.items():
            values = self._add(values, name, each.compute(name, values))
        return values


class DeclaredCheck(_Declared, Check[Any]):
    def report(self, state: Any) -> Report:
        declared, values = self.declaration, self._get_values(state)
        table = declared.page.report.table if declared.page.report else None
        rows = [cells for row in declared.rows for cells in row.render(values.plain)]
        failed = [each.finding for each in values.raw.values() if isinstance(each, FailedReading)]
        return Report.from_findings(
            declared.summary.render(values.plain),
            [*failed, *_render_notes(declared.findings, values)],
            Table(table.columns, rows) if table else None,
            notes=_render_notes(declared.report_notes, values),
        )


class DeclaredChange(_Declared, Change[Any]):
    def plan(self, state: Any) -> Plan:
        plan = self.plan_anyway(state)
        if plan.steps:
            _refuse(self.declaration.refuse, self._get_values(state))
        return plan

    def plan_anyway(self, state: Any) -> Plan:
        declared, values = self.declaration, self._get_values(state)
        steps = [
            step.make(self.target, values)
            for step in declared.steps
            if step.when.is_true(values.plain)
        ]
        current = declared.current_state.render(values.plain)
        if not steps:
            return Plan(current)
        return Plan(current, steps, _render_notes(declared.notes, values))

    def takes_down(self) -> Sequence[Leg]:
        values = self._get_request().plain
        return [Leg.parse(each.render(values)) for each in self.declaration.takes_down]

    def get_probation(self) -> Probation | None:
        make = self.declaration.probation
        return make(self._get_request()) if make else None


def is_declared(runbook: type[AnyRunbook]) -> bool:
    """Return whether a runbook is a page of YAML."""
    return issubclass(runbook, _Declared)


def parse_page(content: bytes) -> tuple[Page, RunbookPage]:
    """Return the content of a file of a page, and the same in its format. Raises PageError."""
    page = read_page(content)
    try:
        return page, RunbookPage.model_validate(page.data)
    except ValidationError as error:
        raise _make_format_error(page, error) from None


def _make_format_error(page: Page, error: ValidationError) -> PageError:
    problems = error.errors()
    # A key that is spelt wrongly is missing too: where it stands is the better place.
    unknown = (each for each in problems if each["type"] == "extra_forbidden")
    problem = next(unknown, problems[0])
    message = _MESSAGES.get(problem["type"], problem["msg"]).format_map(problem.get("ctx", {}))
    path = tuple(each for each in problem["loc"] if not _is_tag(each))
    name = next((each for each in reversed(path) if isinstance(each, str)), "the page")
    return page.make_error(path, f"{name} {message}")


def _is_tag(part: object) -> bool:
    """Return whether a part of a place names a branch of a union, and no key."""
    return part in ("[key]", "constrained-str", "str", "int", "StatePart") or "[" in str(part)


class PageSource:
    """A page and its module. What requests need of it is made when the first one does."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.path, self.content = path, content
        self.page, self.part = parse_page(content)
        self._builder = _Builder(self.page, self.part)
        self.module = ModuleType(f"runbooks.{path.stem}", self.part.sentence)
        self.module.__file__ = str(path)

    @cached_property
    def declaration(self) -> Declaration:
        """The page, checked as a whole. Raises PageError."""
        if questions := self.page.list_questions():
            raise questions[0]
        declaration = self._builder.build()
        vars(self.module).update(declaration.connectors)
        if declaration.rules:
            name = f"connectors.declared.{self.path.stem}"
            rules = ModuleType(name, f"The sudo rules of {self.path.name}.")
            rules.__file__ = str(self.path)
            vars(rules)["SUDO"] = tuple(declaration.rules)
            vars(self.module)["own_commands"] = rules
        return declaration


def load_page(path: Path, content: bytes) -> type[AnyRunbook]:
    """Return the class of a page. Raises PageError."""
    return make_class(PageSource(path, content))


def register_page(runbook: type[AnyRunbook]) -> str:
    """Make the module of a page one that can be imported, and return its name."""
    module = get_source(runbook).module
    vars(module)[runbook.__name__] = runbook
    sys.modules[module.__name__] = module
    return module.__name__


def get_source(runbook: type[AnyRunbook]) -> PageSource:
    """Return the page of a declared runbook."""
    assert issubclass(runbook, _Declared)  # noqa: S101 - see `is_declared`
    return runbook.source


def iterate_readings(request: AnyRunbook, run_query: QueryRunner) -> Iterator[tuple[str, object]]:
    """Yield each reading of a declared runbook with its value, as expressions have it."""
    assert isinstance(request, _Declared)  # noqa: S101 - see `is_declared`
    for name, value in request.iterate_readings(run_query):
        yield name, None if isinstance(value, FailedReading) else cel.make_plain(value)


def check_page(runbook: type[AnyRunbook]) -> None:
    """Check all of a page, and complete its module. Raises PageError."""
    if is_declared(runbook):
        assert get_source(runbook).declaration  # noqa: S101 - raises PageError


def get_module(runbook: type[AnyRunbook]) -> ModuleType:
    """Return the module of a runbook, with the connectors that it uses. Raises PageError."""
    if is_declared(runbook):
        check_page(runbook)
        return get_source(runbook).module
    return sys.modules[runbook.__module__]


def make_class(source: PageSource) -> type[AnyRunbook]:
    """Return the class of a page that was read. Raises PageError."""
    part = source.part
    options: dict[str, Any] = {
        "words": part.words,
        "also_called": part.also_called,
        "example": part.examples[0],
    }
    if part.minutes is not None:
        options["minutes"] = part.minutes
    if part.report is None:
        base: type[AnyRunbook] = DeclaredChange
        options |= {"undo": part.undo, "sets": part.sets}
    else:
        base, table = DeclaredCheck, part.report.table
        options["verifies_tag"] = part.verifies_tag
        if table:
            options |= {"columns": tuple(table.columns), "rows": tuple(table.named)}
    namespace: dict[str, Any] = {
        "__module__": source.module.__name__,
        "__doc__": part.sentence,
        "__annotations__": {
            "host": _fields.Host,
            **{name: _make_annotation(field) for name, field in part.fields.items()},
        },
        "source": source,
    }
    if part.host.tag:
        namespace["host"] = _fields.make_host_field(part.host.tag)
    for name, field in part.fields.items():
        if field.optional or field.default is not None:
            namespace[name] = _make_default(field)
    name = "".join(word.capitalize() for word in part.words.split())
    try:
        return new_class(name, (base,), options, lambda own: own.update(namespace))
    except (TypeError, ValueError) as error:
        raise source.page.make_error(("fields",), f"cannot be used: {error}") from None


def _make_default(field: FieldPart) -> object:
    if field.default is None or field.type == "number":
        return field.default
    return str(field.default)


def _make_annotation(field: FieldPart) -> Any:
    extra = {"lists": field.lists, "within": field.within} if field.lists else None
    options: dict[str, Any] = {
        "title": field.title or None,
        "description": field.description or None,
        "json_schema_extra": extra,
    }
    options = {name: value for name, value in options.items() if value is not None}
    match field.type:
        case "number":
            annotation: Any = Annotated[int, Field(ge=field.least, le=field.most)]
        case "choice":
            annotation = Literal[tuple(map(str, field.values))]  # pyright: ignore[reportInvalidTypeForm]
        case "text":
            bare = field.pattern.removeprefix("^").removesuffix("$")
            empty = "?" if field.default == "" else ""
            annotation = Annotated[str, Field(pattern=f"^({bare}){empty}$", max_length=253)]
        case _:
            annotation = _NAMED_TYPES[field.type]
    # Outside of the choice of null, as forms show what the whole field says.
    return Annotated[annotation | None if field.optional else annotation, Field(**options)]


class _Builder:
    """Checks the parts of a page, and makes what a request needs of them."""

    def __init__(self, page: Page, part: RunbookPage) -> None:
        self._page, self._part = page, part
        self._values: dict[str, Value] = {"host": _HOST_VALUE}
        self._scope = Scope({"host": cel.STRING})
        self._request_scope = self._scope
        self._connectors: dict[str, ModuleType] = {}
        self._rules: list[SudoRule] = []
        self._check_kind()
        for name, field in part.fields.items():
            with self._at("fields", name):
                self._add_field(name, field)
        self._request_scope = self._scope
        self._check_names()

    def build(self) -> Declaration:
        part = self._part
        never = self._make_reasons(part.never, "never")
        readings = {name: self._make_reading(name, each) for name, each in part.read.items()}
        state = {name: self._make_state(name, each) for name, each in part.state.items()}
        report = part.report
        table = report.table if report else None
        return Declaration(
            part,
            readings,
            state,
            never,
            self._make_reasons(part.refuse, "refuse"),
            [self._make_step(at) for at in range(len(part.steps))],
            self._make_text(part.current_state, "current_state"),
            self._make_notes(part.notes, "notes"),
            self._make_takes_down(),
            self._make_probation(),
            self._make_text(report.summary if report else "", "report", "summary"),
            self._make_notes(report.findings if report else (), "report", "findings"),
            self._make_notes(report.notes if report else (), "report", "notes"),
            [*self._make_table_rows(table)] if table else [],
            self._connectors,
            self._rules,
            frozenset(name for name, each in self._scope.types.items() if each == cel.TIME),
        )

    @contextmanager
    def _at(self, *path: str | int) -> Generator[None]:
        """Turn an error into one with its place."""
        try:
            yield
        except PageError:
            raise
        except ValueError as error:
            raise self._page.make_error(path, str(error)) from None

    def _check_kind(self) -> None:
        part = self._part
        with self._at("words"):
            if (part.report is None) == (not part.steps):
                raise ValueError("write either `report`, for a check, or `steps`, for a change")
        of_change = ("current_state", "refuse", "undo", "sets", "takes_down", "probation", "notes")
        for name in of_change:
            with self._at(name):
                if part.report is not None and name in self._page.data:
                    raise ValueError(f"{name} is only for a change, which has `steps`")
        if part.steps:
            self._check_change()

    def _check_change(self) -> None:
        part = self._part
        with self._at("steps"):
            if part.current_state is None:
                raise ValueError("add `current_state`: what was read, as one sentence")
            if part.takes_down is None:
                raise ValueError("add `takes_down`: what may be down meanwhile, [] for nothing")
            if not part.undo and not all(step.no_undo for step in part.steps):
                raise ValueError("add `undo`: what the undo does, in a few words")
            if part.verifies_tag:
                raise ValueError("verifies_tag is only for a check, which has `report`")
        for name, each in part.read.items():
            with self._at("read", name, "may_fail"):
                if each.may_fail:
                    raise ValueError("may_fail is only for a check: a change reads all or nothing")

    def _check_names(self) -> None:
        known = {"host", "row", *self._part.fields}
        for section in ("read", "state"):
            for name in getattr(self._part, section):
                with self._at(section, name):
                    if name in known:
                        raise ValueError(f"{name} is there twice: choose another name")
                    known.add(name)

    def _add_field(self, name: str, field: FieldPart) -> None:
        if name in ("host", "row", "words", "example", "undo", "sets", "minutes", "source"):
            raise ValueError(f"{name} cannot be the name of a field: choose another")
        if hasattr(Runbook, name) or hasattr(Change, name) or hasattr(Check, name):
            raise ValueError(f"{name} cannot be the name of a field: choose another")
        if field.lists and field.lists not in LISTS:
            raise ValueError(f"hosts list no {field.lists}: use one of {', '.join(sorted(LISTS))}")
        if bool(field.values) != (field.type == "choice"):
            raise ValueError("a choice has `values`, and no other type has them")
        if bool(field.pattern) != (field.type == "text"):
            raise ValueError("a text has a `pattern`, and no other type has one")
        if field.type != "number" and (field.least is not None or field.most is not None):
            raise ValueError("`least` and `most` are for numbers")
        self._values[name], type_ = _describe_field(field)
        self._scope = self._scope.extend(**{name: cel.DYN if field.optional else type_})

    def _make_reading(self, name: str, part: ReadPart) -> _Reading:
        path = ("read", name)
        with self._at(*path):
            if sum(map(bool, (part.file, part.run, part.query))) != 1:
                raise ValueError("write one of `file`, `run` and `query`")
        when = self._compile(part.when, *path, "when")
        with self._at(*path):
            read_host, type_ = (
                self._make_named_query(part) if part.query else self._make_own_query(name, part)
            )
        if part.may_fail or part.when != "true":
            type_ = cel.DYN
        self._scope = self._scope.extend(**{name: type_})
        refuse = self._make_reasons(part.refuse, *path, "refuse")
        title = part.title or name.replace("_", " ")
        return _Reading(read_host, when, part.may_fail, title, refuse)

    def _make_named_query(self, part: ReadPart) -> tuple[_Read, cel.Type]:
        if part.root or part.parse:
            raise ValueError("a `query` has its own parser and sudo rules: remove the rest")
        function, connector = commands.find_function(part.query, Query)
        self._connectors |= commands.list_connectors(connector)
        arguments = self._make_arguments(function, part.given)
        if commands.is_reader(function):
            return lambda run, host, given: function(run, host, **arguments(given)), cel.DYN
        return lambda run, host, given: run(host, function(**arguments(given))), cel.DYN

    def _make_own_query(self, name: str, part: ReadPart) -> tuple[_Read, cel.Type]:
        run = [*part.run] or ["/usr/bin/cat" if part.root else "cat", part.file]
        if part.file and not part.file.startswith("/"):
            raise ValueError(f"{part.file!r} is not the path of a file: begin it with /")
        words = commands.make_words(run, self._values, root=part.root, reads=True)
        refuse_change(run)
        if part.root:
            self._rules.append(commands.make_rule(words, read_only=True))
        parse, type_ = make_parser(part)
        self._values[name] = _describe_reading(part)
        statuses = frozenset(part.statuses)

        def read_host(run_query: QueryRunner, host: str, values: Values) -> Any:
            filled = tuple(word.fill(values.raw) for word in words)
            # A value could be what makes a command write, as in `sysctl NAME=VALUE`.
            try:
                refuse_change(filled)
            except ValueError as error:
                raise ParseError(str(error)) from None
            return run_query(host, Query(Shell(filled, root=part.root), parse, statuses))

        return read_host, type_

    def _make_arguments(
        self, function: Callable[..., Any], given: Mapping[str, str | int]
    ) -> Callable[[Values], dict[str, Any]]:
        parameters = commands.list_parameters(function)
        required = {name for name, is_required in parameters.items() if is_required}
        if wrong := sorted((required - given.keys()) | (given.keys() - parameters.keys())):
            names = ", ".join(parameters) or "none"
            raise ValueError(f"its arguments are: {names}. Correct {wrong[0]} under `with`")
        compiled = {name: self._scope.compile(str(each)) for name, each in given.items()}

        def make_arguments(values: Values) -> dict[str, Any]:
            return {name: _get_argument(each, values) for name, each in compiled.items()}

        return make_arguments

    def _make_state(self, name: str, part: "str | StatePart") -> _State:
        source = part if isinstance(part, str) else part.value
        expression = self._compile(source, "state", name)
        with self._at("state", name):
            value = _describe_state(part) if isinstance(part, StatePart) else Value()
        self._values[name] = value
        self._scope = self._scope.extend(**{name: expression.type})
        return _State(expression, value)

    def _make_reasons(self, parts: Sequence[ReasonPart], *path: str) -> list[_Reason]:
        return [
            (
                self._compile(part.when, *path, at, "when", wanted=(cel.BOOL,)),
                self._make_text(part.because, *path, at, "because"),
            )
            for at, part in enumerate(parts)
        ]

    def _make_step(self, at: int) -> _Step:
        part, path = self._part.steps[at], ("steps", at)
        with self._at(*path):
            if (part.undo is None) == (not part.no_undo):
                raise ValueError("write either `undo`, or `no_undo` with the reason")
        when = self._compile(part.when, *path, "when", wanted=(cel.BOOL,))
        with self._at(*path, "when"):
            if not cel.list_names(part.when) & (self._part.read.keys() | self._part.state.keys()):
                raise ValueError(
                    "`when` has nothing that was read, so the change would never be in effect: "
                    "compare what was read with what is requested"
                )
        return _Step(
            self._make_text(part.title, *path, "title"),
            when,
            self._make_command(part.do, *path, "do"),
            self._make_command(part.undo, *path, "undo") if part.undo else None,
            self._make_text(part.no_undo, *path, "no_undo"),
            self._make_text(part.before, *path, "before"),
            self._make_text(part.after, *path, "after"),
            part.undo_title,
        )

    def _make_command(self, part: CommandPart, *path: str | int) -> Command:
        with self._at(*path):
            command = commands.make_command(part, self._values, self._make_arguments)
        if command.rule is not None:
            self._rules.append(command.rule)
        if command.connector is not None:
            self._connectors |= commands.list_connectors(command.connector)
        return command

    def _make_notes(self, parts: Sequence[NotePart], *path: str) -> list[_Rows]:
        return [
            self._make_rows(each, [each.text], "text", *path, at) for at, each in enumerate(parts)
        ]

    def _make_table_rows(self, table: TablePart) -> Iterator[_Rows]:
        for at, part in enumerate(table.rows):
            path = ("report", "table", "rows", at)
            with self._at(*path):
                if len(part.cells) != len(table.columns):
                    raise ValueError(f"a row has {len(table.columns)} cells, one for each column")
            yield self._make_rows(part, part.cells, "cells", *path)

    def _make_rows(
        self, part: NotePart | RowPart, texts: Sequence[str], key: str, *path: str | int
    ) -> _Rows:
        with self._in_scope(self._scope):
            each = None
            if part.each is not None:
                each = self._compile(part.each, *path, "each")
                with self._at(*path, "each"):
                    if not each.type.name().startswith(("LIST", "DYN")):
                        raise ValueError(f"`{part.each}` is not a list")
                self._scope = self._scope.extend(row=cel.DYN)
            when = self._compile(part.when, *path, "when", wanted=(cel.BOOL,))
            return _Rows(tuple(self._make_text(one, *path, key) for one in texts), when, each)

    @contextmanager
    def _in_scope(self, scope: Scope) -> Generator[None]:
        """Have other names, until the block ends."""
        outer, self._scope = self._scope, scope
        yield
        self._scope = outer

    def _make_takes_down(self) -> list[Text]:
        legs = self._part.takes_down or []
        with self._in_scope(self._request_scope):
            return [self._make_text(each, "takes_down", at) for at, each in enumerate(legs)]

    def _make_probation(self) -> Callable[[Values], Probation] | None:
        part = self._part.probation
        if part is None:
            return None
        with self._in_scope(self._request_scope), self._at("probation"):
            if bool(part.of) == bool(part.name and part.restore):
                raise ValueError("write either `of`, or `name` and `restore`")
            return self._find_probation(part) if part.of else self._make_own_probation(part)

    def _make_own_probation(self, part: ProbationPart) -> Callable[[Values], Probation]:
        script = commands.make_script(f"{part.name}-restore", part.restore, 1)
        seconds = Setting(f"{part.name}.probation", str(part.seconds), pattern=r"[1-9][0-9]{0,3}")
        made = Probation(part.name, script, seconds)
        self._rules += probation.make_sudo_rules(made)
        return lambda _: made

    def _find_probation(self, part: ProbationPart) -> Callable[[Values], Probation]:
        if "." in part.of:
            function, module = commands.find_function(part.of, Probation)
            arguments = self._make_arguments(function, part.given)
            make: Callable[[Values], Probation] = lambda values: function(**arguments(values))  # noqa: E731
        else:
            module = commands.find_connector(part.of)
            found: object = vars(module).get("PROBATION")
            if not isinstance(found, Probation):
                raise ValueError(f"Keyturn has no probation {part.of}: write `name` and `restore`")
            make = lambda _: found  # noqa: E731
        self._connectors |= commands.list_connectors(module)
        return make

    def _make_text(self, source: str | None, *path: str | int) -> Text:
        with self._at(*path):
            return cel.compile_text(self._scope, source or "")

    def _compile(
        self, source: str, *path: str | int, wanted: Sequence[cel.Type] = ()
    ) -> Expression:
        with self._at(*path):
            return self._scope.compile(source, *wanted)


def _get_argument(expression: Expression, values: Values) -> Any:
    """Return what a connector's function is given: the very value, if only its name is written."""
    source = expression.source.strip()
    value = values.raw[source] if source in values.raw else expression.evaluate(values.plain)
    if isinstance(value, str) and value.startswith("-"):
        raise ParseError(f"{value[:80]!r} begins with '-', which programs take as an option")
    return value


def _describe_field(field: FieldPart) -> tuple[Value, cel.Type]:
    """Return what a word may hold of a field, and its type in expressions."""
    match field.type:
        case "number":
            return commands.make_number_value(field.least, field.most), cel.INT
        case "choice":
            return commands.make_choice_value([*map(str, field.values)]), cel.STRING
        case "text":
            return commands.make_text_value(field.pattern), cel.STRING
        case "address":
            return commands.ADDRESS_VALUE, cel.STRING
        case "time":
            return Value(), cel.TIME
        case name:
            pattern = next(
                each.pattern
                for info in _NAMED_TYPES[name].__metadata__
                for each in info.metadata
                if getattr(each, "pattern", None)
            )
            return Value(pattern.removeprefix("^").removesuffix("$")), cel.STRING


def _describe_reading(part: ReadPart) -> Value:
    if part.parse == "number":
        return commands.make_number_value(part.least, part.most)
    if part.parse in ("", "text") and part.pattern:
        return commands.make_pattern_value(part.pattern)
    return Value()


def _describe_state(part: StatePart) -> Value:
    if part.pattern:
        return commands.make_pattern_value(part.pattern)
    if part.least is not None and part.most is not None:
        return commands.make_number_value(part.least, part.most)
    raise ValueError("write a `pattern`, or `least` and `most`, or the expression alone")
