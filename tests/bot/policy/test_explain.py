"""The preview of a request: what it would need."""

from dataclasses import replace
from pathlib import Path

import pytest

from bot.db import stats
from bot.policy import PolicyRequest
from bot.policy.explain import (
    AreaEvaluation,
    Evaluation,
    Preview,
    evaluate_request,
    format_wait,
)
from tests.bot.harness import Harness
from tests.bot.restricted_view import restricted_rules
from tests.policies import write_policy
from tests.toy import SetSwitch


def _explain_ruling(tmp_path: Path, person: str, kind: str, *, reversible: bool = True) -> str:
    request = PolicyRequest("abusers clear", kind, "lb1", "cli", person, reversible, now=0)
    return " ".join(evaluate_request(write_policy(tmp_path).get_policy(), request).describe())


@pytest.mark.parametrize(
    ("person", "kind", "reversible", "begins"),
    [
        ("dora", "check", True, "Runs immediately, no approval needed."),
        ("dora", "change", True, "Needs 1 approval from the owners of the edge"),
        ("olga", "change", True, "Runs immediately, no approval needed."),
        ("olga", "change", False, "Needs 1 approval"),
        ("nobody", "check", True, "Not allowed: nobody is not in the policy"),
    ],
)
def test_evaluated_request_is_described_in_sentences(
    tmp_path: Path, person: str, kind: str, reversible: bool, begins: str
):
    assert _explain_ruling(tmp_path, person, kind, reversible=reversible).startswith(begins)


def test_evaluated_request_names_those_who_can_approve(tmp_path: Path):
    assert "Adam Admin, Olga Owner." in _explain_ruling(tmp_path, "dora", "change")
    assert (
        "Olga"
        not in _explain_ruling(tmp_path, "olga", "change", reversible=False).partition(":")[2]
    )


def test_usual_wait_is_computed_from_past_approvals(harness: Harness):
    with harness.database.reading() as tx:
        assert stats.get_usual_wait(tx, "toy set") is None
    for value in ("on", "off", "on"):
        harness.approve(harness.request(SetSwitch(host="lb1", name="lamp", value=value)))
    harness.request(SetSwitch(host="lb1", name="fan", value="on"), person="olga")
    with harness.database.reading() as tx:
        wait = stats.get_usual_wait(tx, "toy set")
    assert wait is not None
    assert 0 < wait < 60_000_000


@pytest.mark.parametrize(("wait", "text"), [(999_999, []), (90_000_000, ["Typical wait: 2 min."])])
def test_usual_wait_below_a_second_is_not_described(wait: int, text: list[str]):
    _, *rest = Evaluation(allowed=True, required_approvals=1).describe(usual_wait=wait)
    assert rest == text


@pytest.mark.parametrize(
    ("microseconds", "words"),
    [
        (400_000, "0 s"),
        (40_000_000, "40 s"),
        (7 * 60_000_000, "7 min"),
        (125 * 60_000_000, "2 h 5 min"),
        (120 * 60_000_000, "2 h"),
    ],
)
def test_usual_wait_is_formatted_in_hours_and_minutes(microseconds: int, words: str):
    assert format_wait(microseconds) == words


def test_evaluated_request_says_when_the_person_cannot_view_such_runs(tmp_path: Path):
    policy = write_policy(tmp_path, rules=restricted_rules()).get_policy()
    unseen = "cannot view such runs of other people."

    def explain(host: str, person: str, who: str = "You") -> str:
        request = PolicyRequest("toy set", "change", host, "cli", person, now=0)
        return " ".join(evaluate_request(policy, request).describe(subject=who))

    assert explain("lb1", "dora").endswith(f"You {unseen}")
    assert explain("lb1", "dora", "Dora Developer").endswith(f"Dora Developer {unseen}")
    assert unseen not in explain("web1", "dora")
    assert unseen not in explain("lb1", "olga")


def test_irreversible_steps_are_named_only_where_their_approvals_differ():
    usual = Evaluation(allowed=True, policy_notes=("Owners change their hosts.",))
    noted = replace(usual, reversible=False, policy_notes=("It cannot be undone.",))
    strict = replace(noted, required_approvals=1, approvals_from="the owners of the edge")

    def describe(irreversible: Evaluation, freeze: str = "", grant: str = "") -> str:
        area = AreaEvaluation("the edge", ["lb1"], usual, irreversible, freeze, grant)
        return " ".join(Preview("dora", "toy set", [area]).describe())

    for freeze in ("", "Fair until 08:00"):
        assert "irreversible" not in describe(noted, freeze)
        assert "If a step is irreversible: needs 1 approval" in describe(strict, freeze)
    # The sentence about a grant does not say what is needed without it.
    assert "If a step is irreversible: runs" in describe(noted, grant="Approved in advance.")
