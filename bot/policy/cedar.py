"""The rules, written in Cedar: what they say to one request. Pure.

Cedar denies by default and a forbid wins over every permit. How many approvals a permit takes,
and from whom, are annotations on it: see https://docs.cedarpolicy.com/policies/syntax-policy.html
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import cedarpy

from bot.model.approvals import ApprovalRequirements, Demand
from bot.policy.annotations import CEILING, AnnotationError, Annotations, parse_annotations
from bot.policy.freezes import DAYS
from bot.policy.mentions import compared_alone, list_comparisons, list_mentions

# What Cedar's own parser takes as one: a string, a remark, the end of a rule, and all the rest.
_PIECES = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|;|[^"/;]+|.', re.DOTALL)


@dataclass(frozen=True)
class Statement:
    """One rule as it is written. line: of its first word, from 1."""

    line: int
    text: str

    def line_of(self, word: str) -> int:
        """Return the line on which *word* first stands, or the first line."""
        before, found, _ = self.text.partition(word)
        return self.line + before.count("\n") if found else self.line


def split_statements(text: str) -> Sequence[Statement]:
    """Return every rule of the text, in order; the last may lack its semicolon."""
    found: list[Statement] = []
    kept, line, start = "", 1, 1
    for piece in _PIECES.findall(text):
        said = "" if piece.startswith("//") else piece
        if not kept:
            # What stands before a rule is not a part of it.
            said = said.lstrip()
            start = line + piece[: len(piece) - len(said)].count("\n")
        line += piece.count("\n")
        kept += said
        if piece == ";":
            found.append(Statement(start, kept))
            kept = ""
    return [*found, Statement(start, kept)] if kept else found


SCHEMA = """
entity Role;
entity Owners;
entity Area;
entity Person in [Role, Owners] { name: String };
entity Host in [Area] { owners: Owners, tags: Set<String> };
type Request = {
  runbook: String,    // its words: "abusers clear"
  kind: String,       // "check" or "change"
  reversible: Bool,   // every step can be taken back
  door: String,       // "slack", "web", "api", "cli" or "schedule"
  own: Bool,          // the principal asked for it, edited it or has scheduled it
  hosts: Long,        // how many hosts the request is for
  novel: Bool,        // its asker has never had this runbook succeed
  frozen: Bool,       // a freeze holds changes of this host
  now: datetime,      // by the database's clock
  weekday: String,    // "mon" to "sun", where the host stands
  hour: Long,         // 0 to 23, where the host stands
  escalated: Bool,    // nobody decided in time, so the next group may approve as well
  instead: Bool,      // another person decides in the principal's stead
  granted: Bool       // a standing grant stands in for the approval
};
action ask, approve, "break-glass" appliesTo {
  principal: Person, resource: Host, context: Request
};
type Viewing = {
  runbook: String,    // its words: "abusers clear"
  kind: String        // "check" or "change"
};
action view appliesTo { principal: Person, resource: Host, context: Viewing };
entity Service;       // Keyturn itself
type Order = {
  own: Bool           // the principal stopped it, or banned that person
};
action stop, resume, ban appliesTo { principal: Person, resource: Service, context: Order };
"""
# Where the name of an entity of each kind is written down.
_NAMED_IN = {
    "Role": "people.yaml",
    "Person": "people.yaml",
    "Area": "areas.yaml",
    "Owners": "areas.yaml",
    "Host": "inventory.yaml",
}
# The kinds of runbooks.
KINDS = ("check", "change")
# What the schema calls words and is one of a few.
_ONE_OF: Mapping[str, Sequence[str]] = {
    "kind": KINDS,
    "door": ("slack", "web", "api", "cli", "schedule"),
    "weekday": DAYS,
}


class RulesError(Exception):
    """The rules cannot be used. The message names the rule and what is wrong with it.

    line: where in the file, from 1.
    """

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


@dataclass(frozen=True)
class Ruling:
    """What the rules say: says, in their own words. terms: what the approvals must come to.

    ceiling: how many hosts one request may be for. rules: the names of those that apply.
    """

    allowed: bool
    says: Sequence[str] = ()
    terms: ApprovalRequirements = field(default_factory=ApprovalRequirements)
    ceiling: int = CEILING
    rules: Sequence[str] = ()

    @property
    def approvals(self) -> int:
        return self.terms.approvals

    @property
    def groups(self) -> Sequence[str]:
        return self.terms.groups

    @property
    def step_up(self) -> bool:
        """Whether an approval takes a second factor."""
        return self.terms.step_up

    @property
    def reason(self) -> bool:
        """Whether asking and approving take a reason."""
        return self.terms.reason


@dataclass(frozen=True)
class Naming:
    """A name that a rule speaks of. kind: Role, Area, Owners, Host or Person."""

    rule: str
    line: int
    kind: str
    name: str

    def __str__(self) -> str:
        return f'rule "{self.rule}": {self.kind.lower()} {self.name!r} is not in {self.file}'

    @property
    def file(self) -> str:
        return _NAMED_IN[self.kind]


@dataclass(frozen=True)
class Wording:
    """Words that a rule compares something of the request with. about: runbook, kind, …"""

    rule: str
    line: int
    about: str
    words: str


@dataclass(frozen=True)
class Viewing:
    """What the rules on the action `view` look at."""

    mentioned: frozenset[str]
    """Attributes by name and entities such as `Host::lb1`."""
    runbooks: frozenset[str]
    """The runbooks that they name."""
    closed: bool
    """Whether all runbooks that they do not name are alike to them."""
    permits: bool
    """Whether any of them permits."""


class Rules:
    """A validated set of rules. text: as it was written. mentioned: what they look at.

    namings: whom they speak of. wordings: with which words they compare what.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        written = split_statements(text)
        for statement in written:
            _check_parses(statement)
        self._schema = cedarpy.Schema.from_str(SCHEMA)
        rules = _static(text)
        where = dict(zip(rules, written, strict=True))
        _check_types(text, where, rules)
        self._rules = {key: _annotated(where[key], key, rule) for key, rule in rules.items()}
        _check_told_apart(where, self._rules)
        self._policies = cedarpy.PolicySet.from_str(text)
        self.mentioned = frozenset(list_mentions(rules))
        viewing = {key: rule for key, rule in rules.items() if _is_about(rule, "view")}
        self.viewing = Viewing(
            frozenset(list_mentions(viewing)),
            frozenset(words for about, words in list_comparisons(viewing) if about == "runbook"),
            closed=compared_alone(viewing, "runbook"),
            permits=any(rule["effect"] == "permit" for rule in viewing.values()),
        )
        self.namings = [
            naming
            for key, rule in rules.items()
            for naming in _namings(self._rules[key], where[key], rule)
        ]
        self.wordings = [
            Wording(self._rules[key].name, where[key].line_of(f'"{words}"'), about, words)
            for key, rule in rules.items()
            for about, words in list_comparisons(rule)
        ]
        for wording in self.wordings:
            _check_possible(wording)

    def judge(
        self,
        entities: cedarpy.Entities,
        *,
        person: str,
        action: str,
        host: str,
        area: str,
        context: Mapping[str, object],
    ) -> Ruling:
        """Say whether *person* may, and with how many approvals: the strictest permit's number.

        area: of the host.
        """
        answer = cedarpy.is_authorized(
            {
                "principal": {"type": "Person", "id": person},
                "action": {"type": "Action", "id": action},
                "resource": {"type": "Host", "id": host},
                "context": dict(context),
            },
            self._policies,
            entities,
            self._schema,
        )
        applied = self._applied(answer)
        # A rule that could not be evaluated might have been a forbid: then nobody may.
        if not answer.allowed or answer.diagnostics.errors:
            broken = ("a rule that cannot be evaluated",) if answer.diagnostics.errors else ()
            return Ruling(allowed=False, says=_said(applied), rules=_names(applied) or broken)
        applied = [rule for rule in applied if rule.overrides] or applied
        return Ruling(
            allowed=True,
            says=_said(applied),
            terms=_terms(applied, area),
            ceiling=min(rule.ceiling for rule in applied),
            rules=_names(applied),
        )

    def judge_order(
        self, entities: cedarpy.Entities, *, person: str, order: str, own: bool
    ) -> Ruling:
        """Say whether *person* may stop, resume or ban; see Order in the schema."""
        answer = cedarpy.is_authorized(
            {
                "principal": {"type": "Person", "id": person},
                "action": {"type": "Action", "id": order},
                "resource": {"type": "Service", "id": "keyturn"},
                "context": {"own": own},
            },
            self._policies,
            entities,
            self._schema,
        )
        applied = self._applied(answer)
        return Ruling(
            allowed=answer.allowed and not answer.diagnostics.errors,
            says=_said(applied),
            terms=ApprovalRequirements(step_up=any(rule.step_up for rule in applied)),
            rules=_names(applied),
        )

    def _applied(self, answer: cedarpy.AuthzResult) -> list[Annotations]:
        """Return the rules that decided, in their order in the file: Cedar names them in none."""
        reasons = sorted(answer.diagnostics.reasons, key=lambda key: (len(key), key))
        return [self._rules[reason] for reason in reasons]


def strictest_ruling(rulings: Sequence[Ruling]) -> Ruling:
    """Return what holds where all of these hold."""
    refused = next((ruling for ruling in rulings if not ruling.allowed), None)
    if refused is not None or not rulings:
        return refused or Ruling(allowed=False)
    terms = ApprovalRequirements()
    for ruling in rulings:
        terms = terms.and_also(ruling.terms)
    return Ruling(
        allowed=True,
        says=tuple(dict.fromkeys(said for ruling in rulings for said in ruling.says)),
        terms=terms,
        ceiling=min(ruling.ceiling for ruling in rulings),
        rules=tuple(dict.fromkeys(rule for ruling in rulings for rule in ruling.rules)),
    )


def _said(applied: Sequence[Annotations]) -> tuple[str, ...]:
    return tuple(rule.says or rule.name for rule in applied)


def _names(applied: Sequence[Annotations]) -> tuple[str, ...]:
    return tuple(rule.name for rule in applied)


def _terms(applied: Sequence[Annotations], area: str) -> ApprovalRequirements:
    """Return what the rules that want the most approvals want; a reason counts with any."""
    most = max(rule.approvals for rule in applied)
    strict = [rule for rule in applied if rule.approvals and rule.approvals == most]
    patiences = [rule.patience for rule in strict if rule.patience]
    demands = [
        Demand(rule.approvals, tuple(_placed(groups, area) for groups in rule.each))
        for rule in strict
    ]
    return ApprovalRequirements(
        demands=tuple(dict.fromkeys(demands)),
        step_up=any(rule.step_up for rule in applied),
        reason=any(rule.reason for rule in applied),
        patience=min(patiences, default=0),
        escalate=_placed(sorted({group for rule in strict for group in rule.escalate}), area),
    )


def _placed(groups: Sequence[str], area: str) -> tuple[str, ...]:
    return tuple(f"area:{area}" if group == "owners" else group for group in groups)


def _static(text: str) -> dict[str, Any]:
    return json.loads(cedarpy.policies_to_json_str(text))["staticPolicies"]


def _check_parses(statement: Statement) -> None:
    try:
        cedarpy.PolicySet.from_str(statement.text)
        rules = _static(statement.text)
    except ValueError as error:
        word = re.search(r"`(.+)`", str(error))
        line = statement.line_of(word[1]) if word else statement.line
        raise RulesError(line, f"{error}; the rule begins on line {statement.line}") from None
    if not rules:
        raise RulesError(statement.line, "this is a template and would never apply: name somebody")


def _is_about(rule: Mapping[str, Any], action: str) -> bool:
    """Say whether a rule in its JSON form applies to an action."""
    scope: Mapping[str, Any] = rule["action"]
    if scope["op"] == "All":
        return True
    named: list[Mapping[str, str]] = scope.get("entities") or [scope["entity"]]
    return any(one["id"] == action for one in named)


def _name(key: str, rule: Mapping[str, Any]) -> str:
    """Return its @id, or the number that the parser gave it."""
    notes: dict[str, str | None] = rule.get("annotations") or {}
    return notes.get("id") or key


def _check_types(text: str, where: Mapping[str, Statement], rules: Mapping[str, Any]) -> None:
    checked = cedarpy.validate_policies(text, SCHEMA)
    for error in checked.errors:
        key = error.policy_id
        if key not in where:
            raise RulesError(1, error.error)
        name = _name(key, rules[key])
        word = re.search(r"`([^`]+)`", error.error.replace(f"`{key}`", ""))
        line = where[key].line_of(word[1]) if word else where[key].line
        raise RulesError(
            line, f'rule "{name}": {error.error.replace(f"for policy `{key}`, ", "")}'
        )


def _check_possible(wording: Wording) -> None:
    """Refuse what is never so: a forbid of it would forbid nothing."""
    possible = _ONE_OF.get(wording.about, (wording.words,))
    if wording.words not in possible:
        raise RulesError(
            wording.line,
            f'rule "{wording.rule}": context.{wording.about} is never "{wording.words}", but one '
            f"of {', '.join(possible)}: correct it",
        )


def _annotated(statement: Statement, key: str, rule: Mapping[str, Any]) -> Annotations:
    try:
        return parse_annotations(key, rule)
    except AnnotationError as bad:
        name = _name(key, rule)
        word = re.search(r"@\w+", str(bad))
        line = statement.line_of(word[0]) if word else statement.line
        raise RulesError(line, f'rule "{name}": {bad}') from None


def _check_told_apart(where: Mapping[str, Statement], rules: Mapping[str, Annotations]) -> None:
    """Refuse a second rule of a name: people are told by its name which rule applied."""
    lines: dict[str, int] = {}
    for key, rule in rules.items():
        line = where[key].line_of("@id")
        if rule.name in lines:
            raise RulesError(
                line,
                f'rule "{rule.name}": the rule on line {lines[rule.name]} has this @id already: '
                "name one of them otherwise",
            )
        lines[rule.name] = line


def _namings(
    rule: Annotations, statement: Statement, written: Mapping[str, Any]
) -> Iterator[Naming]:
    for kind, name in _entities(written):
        yield Naming(rule.name, statement.line_of(f'"{name}"'), kind, name)
    for group in rule.groups:
        kind, _, name = group.partition(":")
        if name:
            yield Naming(rule.name, statement.line_of(group), kind.capitalize(), name)


def _entities(written: object) -> Iterator[tuple[str, str]]:
    """Yield every entity that a rule in its JSON form names, other than actions."""
    if isinstance(written, dict):
        members = cast("dict[str, object]", written)
        kind, name = members.get("type"), members.get("id")
        if isinstance(kind, str) and isinstance(name, str) and kind in _NAMED_IN:
            yield kind, name
        for member in members.values():
            yield from _entities(member)
    elif isinstance(written, list):
        for member in cast("list[object]", written):
            yield from _entities(member)
