"""The rules in Cedar and their rulings on one request. Pure.

Cedar denies by default, and a forbid wins over every permit. Annotations of a permit state how
many approvals it needs and from whom: see https://docs.cedarpolicy.com/policies/syntax-policy.html
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cedarpy

from bot.model.agents import get_agent_name, is_agent
from bot.model.approvals import ApprovalDemand, ApprovalRequirements
from bot.model.run import SOURCES
from bot.policy.annotations import (
    DEFAULT_MAX_HOSTS,
    AnnotationError,
    RuleAnnotations,
    parse_annotations,
)
from bot.policy.freezes import WEEKDAYS
from bot.policy.mentions import (
    is_only_compared,
    iterate_comparisons,
    iterate_mentions,
    iterate_nodes,
)

# The tokens of Cedar: a string, a comment, the end of a rule, and anything else.
_TOKEN_PATTERN = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|;|[^"/;]+|.', re.DOTALL)


_CIRCUMSTANCES = {
    "source": "the source of the request",
    "hosts": "the number of hosts",
    "weekday": "the day of the week",
    "hour": "the time of day",
    "now": "the date",
    "first_time": "earlier runs of the requester",
    "frozen": "freezes",
    "margin": "the redundancy that the change leaves",
    "override": "whether it overrides the redundancy guard",
    "oncall": "who is on call",
    "escalated": "the time without a decision",
    "delegated": "delegations",
    "granted": "standing grants",
    "agent": "the agent",
    "behalf": "the person that an agent acts for",
}


@dataclass(frozen=True)
class Statement:
    """The text of one rule."""

    line: int
    """The line of its first word, from 1."""
    text: str

    def find_line(self, word: str) -> int:
        """Return the line of the first occurrence of *word*, or the first line."""
        before, found, _ = self.text.partition(word)
        return self.line + before.count("\n") if found else self.line


def split_statements(text: str) -> Sequence[Statement]:
    """Return every rule of the text, in order; the last may lack its semicolon."""
    statements: list[Statement] = []
    current, line, start = "", 1, 1
    for piece in _TOKEN_PATTERN.findall(text):
        code = "" if piece.startswith("//") else piece
        if not current:
            # White space before a rule is not a part of it.
            code = code.lstrip()
            start = line + piece[: len(piece) - len(code)].count("\n")
        line += piece.count("\n")
        current += code
        if piece == ";":
            statements.append(Statement(start, current))
            current = ""
    return [*statements, Statement(start, current)] if current else statements


SCHEMA = """
entity Role;
entity Owners;
entity Area;
entity Person in [Role, Owners] { name: String };
entity Agent { name: String };  // a program that makes requests and decides nothing
entity Host in [Area] { owners: Owners, tags: Set<String> };
type Request = {
  runbook: String,    // its name: "abusers clear"
  kind: String,       // "check" or "change"
  reversible: Bool,   // every step has an undo
  source: String,     // "slack", "web", "api", "cli", "mcp", "schedule" or "alert"
  own: Bool,          // the principal requested, edited or scheduled it
  hosts: Long,        // how many hosts the request covers
  first_time: Bool,   // this runbook has never succeeded for the requester
  frozen: Bool,       // a freeze holds changes of this host
  now: datetime,      // by the clock of the database
  weekday: String,    // "mon" to "sun", in the time zone of the host
  hour: Long,         // 0 to 23, in the time zone of the host
  escalated: Bool,    // no one decided in time, so the @escalate groups may approve as well
  delegated: Bool,    // a delegate decides on behalf of the principal
  granted: Bool,      // a standing grant replaces the approval
  margin: Long,       // legs of a service that the change leaves at the least; 99: it takes none
  override: Bool,     // it takes a leg down that the redundancy guard would refuse
  oncall: Long,       // how many people are on duty for the host; 0: none, or not known
  agent: String,      // the agent that requested it; "" for a person
  behalf: String      // the id of the person that the agent acts for; "" for none
};
action request appliesTo { principal: [Person, Agent], resource: Host, context: Request };
action approve, "break-glass" appliesTo { principal: Person, resource: Host, context: Request };
type Viewing = {
  runbook: String,    // its name: "abusers clear"
  kind: String        // "check" or "change"
};
action view appliesTo { principal: [Person, Agent], resource: Host, context: Viewing };
entity Service;       // Keyturn itself
type Order = {
  own: Bool           // the principal stopped it, or banned that person
};
action stop, resume, ban appliesTo { principal: Person, resource: Service, context: Order };
"""
# The file that defines the entities of each kind.
_FILE_OF_ENTITY = {
    "Role": "people.yaml",
    "Person": "people.yaml",
    "Area": "areas.yaml",
    "Owners": "areas.yaml",
    "Host": "inventory.yaml",
}
# The kinds of runbooks.
RUNBOOK_KINDS = ("check", "change")
# The only values of some attributes that the schema calls String.
_ATTRIBUTE_VALUES: Mapping[str, Sequence[str]] = {
    "kind": RUNBOOK_KINDS,
    "source": tuple(SOURCES),
    "weekday": WEEKDAYS,
}


class RulesError(Exception):
    """The rules are invalid. The message names the rule and the problem.

    Attributes:
        line: The line in the file, from 1.
    """

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


NO_PERMIT = "no rule of the policy permits it"


@dataclass(frozen=True)
class Ruling:
    """The decision of the rules about one request."""

    allowed: bool
    policy_notes: Sequence[str] = ()
    """The descriptions of the rules that apply, or why it is refused."""
    requirements: ApprovalRequirements = field(default_factory=ApprovalRequirements)
    """The approvals that the request needs."""
    max_hosts: int = DEFAULT_MAX_HOSTS
    """How many hosts one request may cover."""
    rules: Sequence[str] = ()
    """The names of the rules that apply."""
    requires_review: bool = False
    """Whether another person reviews the run within a day."""

    @property
    def refusal_reason(self) -> str:
        """Why the rules refuse it."""
        return "; ".join(self.policy_notes) or NO_PERMIT

    @property
    def required_approvals(self) -> int:
        return self.requirements.required_approvals

    @property
    def approver_groups(self) -> Sequence[str]:
        return self.requirements.approver_groups

    @property
    def requires_second_factor(self) -> bool:
        """Whether an approval needs a second factor."""
        return self.requirements.requires_second_factor

    @property
    def requires_signature(self) -> bool:
        """Whether an approval must be a signature over the plan."""
        return self.requirements.requires_signature

    @property
    def requires_signed_request(self) -> bool:
        """Whether the requester must sign the plan before it is approved."""
        return self.requirements.requires_signed_request

    @property
    def requires_ticket(self) -> bool:
        """Whether the request must name an approved change ticket."""
        return self.requirements.requires_ticket

    @property
    def requires_reason(self) -> bool:
        """Whether requests and approvals need a reason."""
        return self.requirements.requires_reason


@dataclass(frozen=True)
class EntityReference:
    """The name of an entity in a rule."""

    rule: str
    line: int
    kind: str
    """`Role`, `Area`, `Owners`, `Host` or `Person`."""
    name: str
    is_permit: bool
    """Whether the rule permits. An unknown name in a forbid would forbid nothing."""

    def __str__(self) -> str:
        return f'rule "{self.rule}": {self.kind.lower()} {self.name!r} is not in {self.file}'

    @property
    def file(self) -> str:
        return _FILE_OF_ENTITY[self.kind]


@dataclass(frozen=True)
class AttributeComparison:
    """A string that a rule compares an attribute of the request with."""

    rule: str
    line: int
    attribute: str
    """`runbook`, `kind`, …"""
    value: str


@dataclass(frozen=True)
class ConditionalRule:
    """A rule that depends on more than the person, the runbook and the host."""

    name: str
    note: str
    """Its description; "" without one."""
    text: str
    depends_on: Sequence[str]
    """The circumstances, in words."""


@dataclass(frozen=True)
class ViewRules:
    """What the rules for the action `view` depend on."""

    mentioned: frozenset[str]
    """Attributes by name and entities such as `Host::lb1`."""
    runbooks: frozenset[str]
    """The runbooks that they name."""
    compares_runbooks_only: bool
    """Whether they treat all runbooks that they do not name alike."""
    has_permit: bool
    """Whether any of them permits."""


class Rules:
    """A validated set of rules.

    Attributes:
        text: The text of policy.cedar.
        mentioned: The attributes and entities that the rules depend on.
        inspected: The same without entities that the head of a rule only compares with: of these,
            rules read no data.
        view_rules: What the rules for the action `view` depend on.
        entity_references: The entities that the rules name.
        conditional_rules: The rules that depend on the circumstances of a request.
        comparisons: The strings that the rules compare attributes with.
        requires_reviews: Whether any rule has @review.
        distinct_runbooks: The runbooks that the rules may treat differently from all others; None
            if that may be any.

    Raises:
        RulesError: A rule is invalid.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        statements = split_statements(text)
        rules = _try_to_parse(text)
        if len(rules) != len(statements):
            for statement in statements:
                _check_parses(statement)
            rules = _parse_to_json(text)
        self._schema = cedarpy.Schema.from_str(SCHEMA)
        by_key = dict(zip(rules, statements, strict=True))
        _check_types(text, by_key, rules)
        self._rules = {
            key: _parse_rule_annotations(by_key[key], key, rule) for key, rule in rules.items()
        }
        _check_names_unique(by_key, self._rules)
        self._rules_for_agents = {
            self._rules[key].name for key, rule in rules.items() if _is_for_agents(rule)
        }
        self._policies = cedarpy.PolicySet.from_str(text)
        mentions = {key: frozenset(iterate_mentions(rule)) for key, rule in rules.items()}
        self.mentioned = frozenset[str]().union(*mentions.values())
        self.inspected = frozenset(
            iterate_mentions([_drop_compared_entities(rule) for rule in rules.values()])
        )
        viewing = {key: rule for key, rule in rules.items() if _applies_to_action(rule, "view")}
        self.view_rules = ViewRules(
            frozenset[str]().union(*(mentions[key] for key in viewing)),
            frozenset(
                value
                for attribute, value in iterate_comparisons(viewing)
                if attribute == "runbook"
            ),
            compares_runbooks_only=is_only_compared(viewing, "runbook"),
            has_permit=any(rule["effect"] == "permit" for rule in viewing.values()),
        )
        self.entity_references = [
            reference
            for key, rule in rules.items()
            for reference in _iterate_entity_references(self._rules[key], by_key[key], rule)
        ]
        self.comparisons = [
            AttributeComparison(
                self._rules[key].name, by_key[key].find_line(f'"{value}"'), attribute, value
            )
            for key, rule in rules.items()
            for attribute, value in iterate_comparisons(rule)
        ]
        for comparison in self.comparisons:
            _check_comparison(comparison)
        self.conditional_rules = [
            ConditionalRule(
                self._rules[key].name, self._rules[key].policy_note, by_key[key].text, conditions
            )
            for key in rules
            if (conditions := _list_conditions(mentions[key]))
        ]
        self.requires_reviews = any(rule.requires_review for rule in self._rules.values())
        self.distinct_runbooks = (
            frozenset(one.value for one in self.comparisons if one.attribute == "runbook")
            if is_only_compared(rules, "runbook")
            else None
        )

    @property
    def can_require_ticket(self) -> bool:
        """Whether a rule has @ticket."""
        return any(rule.requires_ticket for rule in self._rules.values())

    @property
    def can_require_second_factor(self) -> bool:
        """Whether any rule has @stepup."""
        return any(rule.requires_second_factor for rule in self._rules.values())

    @property
    def most_witnesses(self) -> int:
        """The largest number of a rule with @witnessed."""
        return max((rule.required_witnesses for rule in self._rules.values()), default=0)

    def compute_ruling(
        self,
        entities: cedarpy.Entities,
        *,
        person: str,
        action: str,
        host: str,
        area: str,
        context: Mapping[str, object],
        is_review_overdue: bool = False,
    ) -> Ruling:
        """Return whether *person* may do it, and the approvals of the strictest permit.

        A permit allows an agent something only if its head names agents: rules for everyone were
        written for people. All other rules that match make it stricter.

        Args:
            person: A person or an agent.
            area: The area of the host.
            is_review_overdue: Whether permits with @review do not count for the person.
        """
        principal = ("Agent", get_agent_name(person)) if is_agent(person) else ("Person", person)
        answer = cedarpy.is_authorized(
            {
                "principal": {"type": principal[0], "id": principal[1]},
                "action": {"type": "Action", "id": action},
                "resource": {"type": "Host", "id": host},
                "context": dict(context),
            },
            self._policies,
            entities,
            self._schema,
        )
        applied = self._list_applied_rules(answer)
        # A rule that cannot be evaluated might be a forbid, so everything is refused.
        if not answer.allowed or answer.diagnostics.errors:
            broken = ("a rule that cannot be evaluated",) if answer.diagnostics.errors else ()
            return Ruling(
                allowed=False,
                policy_notes=_list_policy_notes(applied),
                rules=_list_rule_names(applied) or broken,
            )
        if is_review_overdue:
            applied = [rule for rule in applied if not rule.requires_review]
            if not applied:
                note = "another person has to review your earlier run first"
                return Ruling(allowed=False, policy_notes=(note,))
        permits = applied
        if is_agent(person):
            permits = [rule for rule in applied if rule.name in self._rules_for_agents]
            if not permits:
                note = f"no rule of the policy permits it to the agent {principal[1]}"
                return Ruling(allowed=False, policy_notes=(note,))
        applied = [rule for rule in permits if rule.is_override] or applied
        return Ruling(
            allowed=True,
            policy_notes=_list_policy_notes(applied),
            requirements=_build_requirements(applied, area),
            max_hosts=min(rule.max_hosts for rule in applied),
            rules=_list_rule_names(applied),
            requires_review=any(rule.requires_review for rule in applied),
        )

    def compute_order_ruling(
        self, entities: cedarpy.Entities, *, person: str, order: str, is_own: bool
    ) -> Ruling:
        """Return whether *person* may stop, resume or ban; see Order in the schema."""
        answer = cedarpy.is_authorized(
            {
                "principal": {"type": "Person", "id": person},
                "action": {"type": "Action", "id": order},
                "resource": {"type": "Service", "id": "keyturn"},
                "context": {"own": is_own},
            },
            self._policies,
            entities,
            self._schema,
        )
        applied = self._list_applied_rules(answer)
        return Ruling(
            allowed=answer.allowed and not answer.diagnostics.errors,
            policy_notes=_list_policy_notes(applied),
            requirements=ApprovalRequirements(
                requires_second_factor=any(rule.requires_second_factor for rule in applied)
            ),
            rules=_list_rule_names(applied),
        )

    def _list_applied_rules(self, result: cedarpy.AuthzResult) -> list[RuleAnnotations]:
        """Return the rules that decided, in the order of the file: Cedar does not sort them."""
        reasons = sorted(result.diagnostics.reasons, key=lambda key: (len(key), key))
        return [self._rules[reason] for reason in reasons]


def combine_rulings(rulings: Sequence[Ruling]) -> Ruling:
    """Return the strictest combination of rulings."""
    refused = next((ruling for ruling in rulings if not ruling.allowed), None)
    if refused is not None or not rulings:
        return refused or Ruling(allowed=False)
    requirements = ApprovalRequirements()
    for ruling in rulings:
        requirements = requirements.merge_with(ruling.requirements)
    return Ruling(
        allowed=True,
        policy_notes=tuple(
            dict.fromkeys(note for ruling in rulings for note in ruling.policy_notes)
        ),
        requirements=requirements,
        max_hosts=min(ruling.max_hosts for ruling in rulings),
        rules=tuple(dict.fromkeys(rule for ruling in rulings for rule in ruling.rules)),
        requires_review=any(ruling.requires_review for ruling in rulings),
    )


def _list_policy_notes(applied: Sequence[RuleAnnotations]) -> tuple[str, ...]:
    return tuple(rule.policy_note or rule.name for rule in applied)


def _list_rule_names(applied: Sequence[RuleAnnotations]) -> tuple[str, ...]:
    return tuple(rule.name for rule in applied)


def _build_requirements(applied: Sequence[RuleAnnotations], area: str) -> ApprovalRequirements:
    """Return the requirements of the strictest rules, and a reason if any rule needs one."""
    most = max(rule.required_approvals for rule in applied)
    strict = [
        rule for rule in applied if rule.required_approvals and rule.required_approvals == most
    ]
    reminders = [rule.remind_after for rule in strict if rule.remind_after]
    demands = [
        ApprovalDemand(
            rule.required_approvals,
            tuple(_replace_owners_group(groups, area) for groups in rule.group_sets),
        )
        for rule in strict
    ]
    return ApprovalRequirements(
        demands=tuple(dict.fromkeys(demands)),
        requires_second_factor=any(rule.requires_second_factor for rule in applied),
        requires_signature=any(rule.requires_signature for rule in applied),
        requires_signed_request=any(rule.requires_signed_request for rule in applied),
        requires_reason=any(rule.requires_reason for rule in applied),
        requires_ticket=any(rule.requires_ticket for rule in applied),
        required_witnesses=max(rule.required_witnesses for rule in applied),
        remind_after=min(reminders, default=0),
        escalate_to=_replace_owners_group(
            sorted({group for rule in strict for group in rule.escalate_to}), area
        ),
    )


def _replace_owners_group(groups: Sequence[str], area: str) -> tuple[str, ...]:
    return tuple(f"area:{area}" if group == "owners" else group for group in groups)


def _parse_to_json(text: str) -> dict[str, Any]:
    return json.loads(cedarpy.policies_to_json_str(text))["staticPolicies"]


def _try_to_parse(text: str) -> dict[str, Any]:
    """Return the rules in their JSON form, or none: only one by one, each error has its line."""
    try:
        cedarpy.PolicySet.from_str(text)
        return _parse_to_json(text)
    except ValueError:
        return {}


def _check_parses(statement: Statement) -> None:
    try:
        cedarpy.PolicySet.from_str(statement.text)
        rules = _parse_to_json(statement.text)
    except ValueError as error:
        word = re.search(r"`(.+)`", str(error))
        line = statement.find_line(word[1]) if word else statement.line
        raise RulesError(line, f"{error}; the rule starts on line {statement.line}") from None
    if not rules:
        raise RulesError(
            statement.line,
            "this is a template, which never applies: replace ?principal or ?resource by a name",
        )


def _list_conditions(mentioned: Collection[str]) -> list[str]:
    """Return the circumstances of a request that a rule depends on, in words."""
    return [words for attribute, words in _CIRCUMSTANCES.items() if attribute in mentioned]


def _drop_compared_entities(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule in its JSON form without `principal == …` and `resource == …` of its head."""
    scopes = ("principal", "resource")
    return {
        name: part
        for name, part in rule.items()
        if not (name in scopes and part.get("op") == "==")
    }


def _applies_to_action(rule: Mapping[str, Any], action: str) -> bool:
    """Return whether a rule in its JSON form applies to an action."""
    scope: Mapping[str, Any] = rule["action"]
    if scope["op"] == "All":
        return True
    actions: list[Mapping[str, str]] = scope.get("entities") or [scope["entity"]]
    return any(one["id"] == action for one in actions)


def _is_for_agents(rule: Mapping[str, Any]) -> bool:
    """Return whether the head of a rule in its JSON form names agents or one agent."""
    scope: Mapping[str, Any] = rule["principal"]
    entity: Mapping[str, str] = scope.get("entity") or {}
    return "Agent" in {scope.get("entity_type"), entity.get("type")}


def _get_rule_name(key: str, rule: Mapping[str, Any]) -> str:
    """Return its @id, or the key that the parser gave it."""
    annotations: dict[str, str | None] = rule.get("annotations") or {}
    return annotations.get("id") or key


def _check_types(text: str, statements: Mapping[str, Statement], rules: Mapping[str, Any]) -> None:
    checked = cedarpy.validate_policies(text, SCHEMA)
    for error in checked.errors:
        key = error.policy_id
        if key not in statements:
            raise RulesError(1, error.error)
        name = _get_rule_name(key, rules[key])
        word = re.search(r"`([^`]+)`", error.error.replace(f"`{key}`", ""))
        line = statements[key].find_line(word[1]) if word else statements[key].line
        raise RulesError(
            line, f'rule "{name}": {error.error.replace(f"for policy `{key}`, ", "")}'
        )


def _check_comparison(comparison: AttributeComparison) -> None:
    """Refuse a comparison that never matches: a forbid with it would forbid nothing."""
    possible = _ATTRIBUTE_VALUES.get(comparison.attribute, (comparison.value,))
    if comparison.value not in possible:
        raise RulesError(
            comparison.line,
            f'rule "{comparison.rule}": context.{comparison.attribute} is never '
            f'"{comparison.value}": use one of {", ".join(possible)}',
        )


def _parse_rule_annotations(
    statement: Statement, key: str, rule: Mapping[str, Any]
) -> RuleAnnotations:
    try:
        return parse_annotations(key, rule)
    except AnnotationError as error:
        name = _get_rule_name(key, rule)
        word = re.search(r"@\w+", str(error))
        line = statement.find_line(word[0]) if word else statement.line
        raise RulesError(line, f'rule "{name}": {error}') from None


def _check_names_unique(
    statements: Mapping[str, Statement], rules: Mapping[str, RuleAnnotations]
) -> None:
    """Refuse two rules with one name: decisions are explained by the name of the rule."""
    lines: dict[str, int] = {}
    for key, rule in rules.items():
        line = statements[key].find_line("@id")
        if rule.name in lines:
            raise RulesError(
                line,
                f'rule "{rule.name}": the rule on line {lines[rule.name]} has the same @id: '
                "rename one of them",
            )
        lines[rule.name] = line


def _iterate_entity_references(
    rule: RuleAnnotations, statement: Statement, rule_json: Mapping[str, Any]
) -> Iterator[EntityReference]:
    is_permit = rule_json.get("effect") == "permit"
    for kind, name in _iterate_entities(rule_json):
        line = statement.find_line(f'"{name}"')
        yield EntityReference(rule.name, line, kind, name, is_permit)
    for group in rule.groups:
        kind, _, name = group.partition(":")
        if name:
            line = statement.find_line(group)
            yield EntityReference(rule.name, line, kind.capitalize(), name, is_permit)


def _iterate_entities(rule_json: object) -> Iterator[tuple[str, str]]:
    """Yield every entity that a rule in its JSON form names, other than actions."""
    for node in iterate_nodes(rule_json):
        kind, name = node.get("type"), node.get("id")
        if isinstance(kind, str) and isinstance(name, str) and kind in _FILE_OF_ENTITY:
            yield kind, name
