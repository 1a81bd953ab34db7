"""The catalogue of runbooks as one HTML page: example, who may, undo, sudo lines. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bot.cli.policy_page import create_template_environment
from bot.hosts.sudo_rules import format_rule, list_sudo_grants
from bot.model.runbook_info import RunbookInfo, list_runbook_info
from bot.policy import Policy
from bot.policy.matrix import PolicyMatrix, RequestKind, build_matrix
from runbooks import load_catalogue

_ANSWERS = {
    "allowed": "may run it",
    "approval": "may request it",
    "refused": "may not",
}


@dataclass(frozen=True)
class CatalogueEntry:
    """One runbook on the page."""

    info: RunbookInfo
    who: Sequence[str]
    """Who may do what, one sentence each; empty without a policy."""
    sudo_lines: Sequence[str]
    """The sudoers lines that a login named keyturn needs, with default settings."""


def render_catalogue_page(policy: Policy | None, prefix: str = "") -> str:
    """Return a complete HTML document of the runbooks whose name begins with *prefix*.

    policy: None if there is no valid policy; then the page does not say who may run them.
    """
    who = _list_people(policy) if policy is not None else {}
    hosts = policy.inventory.hosts.values() if policy is not None else ()
    entries = [
        CatalogueEntry(info, who.get(info.name, ()), [*_iterate_sudo_lines(info.name)])
        for info in list_runbook_info(prefix, hosts=hosts)
    ]
    template = create_template_environment().get_template("catalogue.html")
    return template.render(entries=entries, version=policy.version if policy is not None else "")


def _list_people(policy: Policy) -> dict[str, Sequence[str]]:
    """Return who may run each runbook, one sentence for each group of people."""
    runbooks = list_runbook_info()
    matrix = build_matrix(policy, runbooks, now=datetime.now(UTC))
    return {
        runbook.name: [
            f"{', '.join(group.people.values())}: "
            f"{_describe_rights(policy, matrix, index, runbook)}"
            for index, group in enumerate(matrix.groups)
        ]
        for runbook in runbooks
    }


def _describe_rights(
    policy: Policy, matrix: PolicyMatrix, group: int, runbook: RunbookInfo
) -> str:
    tagged = {host.name for host in policy.inventory if runbook.tag in host.tags}
    noun = RequestKind(runbook.name, runbook.kind, runbook.effect != "irreversible").noun
    answers = {
        row.where: _ANSWERS[row.cells[group].answer]
        for row in matrix.rows
        if runbook.name in row.runbooks
        and row.noun == noun
        and (not runbook.tag or tagged & row.hosts)
    }
    if len(set(answers.values())) == 1:
        return next(iter(answers.values()))
    return (
        "; ".join(f"{where}: {answer}" for where, answer in answers.items()) or "no suitable host"
    )


def _iterate_sudo_lines(words: str) -> Iterator[str]:
    for grant in list_sudo_grants({words: load_catalogue()[words]}):
        yield format_rule("keyturn", grant.rule)
