"""The catalogue of runbooks as one HTML page: example, who may, undo, sudo lines. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bot.hosts.sudo_rules import list_sudo_grants
from bot.model.runbook_info import RunbookInfo, list_runbook_info
from bot.policy import Policy
from bot.policy.summary.matrix import MatrixCell, PolicyMatrix, build_matrix
from bot.policy.summary.render import create_template_environment
from connectors.errors import SettingError
from connectors.sudo import RuleTooLongError, SudoRule
from runbooks import load_catalogue

_ANSWERS = {
    "allowed": "may run it",
    "approval": "may request it",
    "refused": "may not",
    "none": "no suitable host",
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
    who = _list_people(build_matrix(policy)) if policy is not None else {}
    hosts = policy.inventory.hosts.values() if policy is not None else ()
    entries = [
        CatalogueEntry(info, who.get(info.name, ()), [*_iterate_sudo_lines(info.name)])
        for info in list_runbook_info(prefix, hosts=hosts)
    ]
    template = create_template_environment("bot.cli").get_template("catalogue.html")
    return template.render(entries=entries, version=policy.version if policy is not None else "")


def _list_people(matrix: PolicyMatrix) -> dict[str, Sequence[str]]:
    return {
        row.runbook.name: [
            f"{', '.join(people)}: {_describe_cell(cell)}"
            for people, cell in zip(matrix.people, row.cells, strict=True)
        ]
        for row in matrix.rows
    }


def _describe_cell(cell: MatrixCell) -> str:
    return "; ".join(cell.areas) or _ANSWERS[cell.answer]


def _iterate_sudo_lines(words: str) -> Iterator[str]:
    for grant in list_sudo_grants({words: load_catalogue()[words]}):
        yield _format_line(grant.rule)


def _format_line(rule: SudoRule) -> str:
    try:
        return rule.format_line("keyturn", {})
    except (RuleTooLongError, SettingError):
        installed = rule.for_installed_scripts
        return installed.format_line("keyturn", {})
