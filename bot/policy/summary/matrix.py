"""Who may request which runbook, as a matrix. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from bot.model.runbook_info import RunbookInfo, list_runbook_info
from bot.policy import Policy, Ruling
from bot.policy.summary.probes import PolicyProbe, RequestKind


@dataclass(frozen=True)
class MatrixCell:
    """What the people of a column may do with the runbook of a row."""

    answer: str
    """allowed, approval, refused, or mixed if that differs by host."""
    areas: Sequence[str] = ()
    """If mixed, what holds in each area, in words."""


@dataclass(frozen=True)
class MatrixRow:
    """The cells of one runbook."""

    runbook: RunbookInfo
    cells: Sequence[MatrixCell]


@dataclass(frozen=True)
class PolicyMatrix:
    """One column for each group of people whom the rules treat alike."""

    people: Sequence[Sequence[str]]
    """The names of the people of each column."""
    rows: Sequence[MatrixRow]


@lru_cache(maxsize=4)
def build_matrix(policy: Policy) -> PolicyMatrix:
    """Return the matrix for ordinary circumstances: on a Wednesday at noon, outside freezes."""
    runbooks = list_runbook_info()
    probe = PolicyProbe(policy, runbooks, datetime.fromtimestamp(0, UTC))
    rulings = {person: probe.list_request_rulings(person) for person in probe.people}
    return PolicyMatrix(
        [[policy.get_person_name(one) for one in people] for people in probe.people.values()],
        [
            MatrixRow(
                runbook, [_build_cell(probe, runbook, rulings[person]) for person in probe.people]
            )
            for runbook in runbooks
        ],
    )


def _build_cell(
    probe: PolicyProbe, runbook: RunbookInfo, rulings: dict[tuple[str, RequestKind], Ruling]
) -> MatrixCell:
    wanted = RequestKind(runbook.name, runbook.kind, runbook.effect != "irreversible")
    request = next(one for one, members in probe.requests.items() if wanted in members)
    answers: dict[str, set[str]] = {}
    for host, members in probe.hosts.items():
        suitable = [one for one in members if _is_suitable(probe.policy, runbook, one)]
        if suitable:
            title = probe.policy.get_area(host).title
            answers.setdefault(title, set()).add(_get_answer(rulings[host, request]))
    different = set[str]().union(*answers.values())
    if len(different) <= 1:
        return MatrixCell(next(iter(different), "none"))
    words = {"allowed": "may", "approval": "needs approval", "refused": "may not"}
    areas = [
        f"{title}: {' or '.join(words[one] for one in sorted(found))}"
        for title, found in sorted(answers.items())
    ]
    return MatrixCell("mixed", areas)


def _is_suitable(policy: Policy, runbook: RunbookInfo, host: str) -> bool:
    return not runbook.tag or runbook.tag in policy.inventory[host].tags


def _get_answer(ruling: Ruling) -> str:
    if not ruling.allowed:
        return "refused"
    return "approval" if ruling.required_approvals else "allowed"
