"""`keyturn policy`: pages, explanations and exit status."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bot.__main__ import main
from bot.policy import PolicyDirectory
from tests.bot.harness import open_harness
from tests.policies import write_policy
from tests.toy import SetSwitch


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a policy and no database yet, which is where commands work."""
    write_policy(tmp_path / "policy")
    monkeypatch.setenv("KEYTURN_POLICY", str(tmp_path / "policy"))
    monkeypatch.setenv("KEYTURN_DATA", str(tmp_path))
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["policy", *words])


def add_history(place: Path) -> None:
    """Let two requests be approved and one be made that takes none."""
    with open_harness(place) as harness:
        for value in ("on", "off"):
            harness.approve(harness.request(SetSwitch(host="lb1", name="lamp", value=value)))
        harness.request(SetSwitch(host="lb1", name="fan", value="on"), "olga")


def test_policy_page_prints_text_html_or_json(place: Path):
    text = run("page").output
    assert "DORA DEVELOPER (DEVELOPER)" in text
    assert "Every reversible change, storage: 1 approval from the owners of storage" in text
    alone = run("page", "--person", "stan")
    assert "STAN STORAGE" in alone.output
    assert "DORA" not in alone.output
    file = place / "policy.html"
    assert run("page", "--html", str(file)).output == f"wrote {file}\n"
    assert file.read_text().startswith("<!doctype html>")
    data = json.loads(run("page", "--json").output)
    assert {"dora", "olga", "adam", "stan"} == {
        person for group in data["groups"] for person in group["people"]
    }


def test_policy_page_says_that_it_reads_no_on_call_calendar(place: Path):
    assert "no one counts as on duty" not in run("page").output.lower()
    (place / "policy" / "oncall.yaml").write_text("oncall: {edge: {file: edge.ics}}\n")
    text = " ".join(run("page").output.split())
    assert "No one counts as on duty, because on-call calendars are not read here." in text


def test_policy_check_warns_of_typing_errors_and_calls_the_policy_valid(place: Path):
    people = place / "policy" / "people.yaml"
    people.write_text(people.read_text().replace("[developer]", "[developer, develper]", 1))
    checked = run("check")
    assert (checked.exit_code, checked.stdout[:14]) == (0, "valid, version")
    assert "warning: people.yaml: dora has the role develper" in checked.stderr


def test_policy_page_of_an_unknown_person_or_broken_policy_is_refused(place: Path):
    stranger = run("page", "--person", "eve")
    assert (stranger.exit_code, "unknown person eve" in stranger.output) == (3, True)
    (place / "policy" / "policy.cedar").write_text("nonsense")
    broken = run("page")
    assert broken.exit_code == 1
    assert "policy.cedar" in broken.output
    assert "Traceback" not in broken.output


def test_policy_explain_shows_the_approvers_of_each_area(place: Path):
    result = run("explain", "olga", "service", "restart", "lb*", "nas1", "nginx")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert "request each area separately" in lines[0]
    assert lines[1].startswith("On lb1, lb2 (the edge): Needs 1 approval")
    assert "Adam Admin." in lines[1]
    assert any(
        line.startswith("On nas1 (storage): ") and "Stan Storage." in line for line in lines
    )


def test_policy_explain_shows_approvals_for_irreversible_steps(place: Path):
    result = run("explain", "olga", "abusers", "clear", "lb1", "203.0.113.9")
    assert result.output.startswith("Runs immediately, no approval needed.")
    assert "If a step is irreversible: needs 1 approval from" in result.output


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["dora", "abusers", "show", "lb1"], 0, "Runs immediately, no approval needed."),
        (["eve", "abusers", "show", "lb1"], 4, "Not allowed: eve is not in the policy"),
        (["dora", "abusers", "clear"], 2, "the host is missing"),
        (["dora", "abusers", "clear", "lb9"], 2, "there is no host 'lb9'"),
        (
            ["dora", "abusers", "clear", "nas1"],
            2,
            "nas1 is not tagged haproxy; hosts with this tag",
        ),
        (["dora", "abusers", "claer", "lb1"], 2, "Did you mean"),
    ],
)
def test_policy_explain_exits_with_a_status_for_scripts(
    place: Path, words: list[str], status: int, says: str
):
    result = run("explain", *words)
    assert (result.exit_code, says in result.output) == (status, True), result.output


def test_policy_explain_shows_the_usual_wait_and_an_active_freeze(place: Path):
    add_history(place)
    (place / "policy" / "freezes.yaml").write_text(
        'freezes: [{name: long, from: "2000-01-01 00:00", until: "2999-01-01 00:00"}]\n'
    )
    data = json.loads(run("explain", "dora", "abusers", "clear", "@haproxy", "--json").output)
    assert data["allowed"] is True
    assert data["answers"][0]["hosts"] == ["lb1", "lb2"]
    assert data["answers"][0]["evaluation"]["approvers"] == ["Adam Admin", "Olga Owner"]
    assert data["usual_wait_seconds"] is None
    output = run("explain", "dora", "abusers", "clear", "lb1").output
    assert "Currently on hold: the edge is frozen until 2999-01-01" in output


def test_policy_commands_escape_hostile_names(place: Path):
    people = place / "policy" / "people.yaml"
    people.write_text(people.read_text() + '  eve: {name: "E‮ve"}\n')
    assert PolicyDirectory(place / "policy")
    for words in (["page"], ["explain", "eve", "abusers", "show", "lb1"]):
        assert "‮" not in run(*words).output


def test_policy_check_prints_each_problem_on_its_own_line(place: Path):
    inventory = place / "policy" / "inventory.yaml"
    inventory.write_text("hosts:\n  a: {address: a, port: 0}\n  b: {address: b, port: 99999}\n")
    checked = run("check", str(place / "policy"))
    assert checked.exit_code == 1
    lines = checked.output.splitlines()
    assert [line for line in lines if ".port: must be" in line] == [
        "keyturn: inventory.yaml, line 2: hosts.a.port: must be 1 or more",
        "keyturn: inventory.yaml, line 3: hosts.b.port: must be 65535 or less",
    ]
