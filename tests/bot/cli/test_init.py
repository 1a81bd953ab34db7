"""`keyturn init` writes a policy with which two people work from the first minute."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bot.policy.loader import load_policy
from tests.bot.cli.test_terminal import KEYTURN, a_terminal
from tests.cli_process import run_keyturn
from tests.policies import HOST_KEY

OLGA, DORA = "Olga Berg <olga@example.com>", "Dóra Lind"
PEOPLE = ("--person", OLGA, "--person", DORA, "--area", "edge")


def add_host(policy: Path) -> None:
    inventory = policy / "inventory.yaml"
    fields = f"{{address: lb1.example.com, area: edge, tags: [haproxy], host_key: {HOST_KEY}}}"
    text = inventory.read_text()
    inventory.write_text(text.replace("hosts: {}\n", f"hosts:\n  lb1: {fields}\n"))


def test_each_of_the_first_two_people_may_request_what_the_other_approves(tmp_path: Path):
    slack = ("--slack", "T1/U1", "--slack", "T1/U2")
    done = run_keyturn(tmp_path, "init", *PEOPLE, *slack)
    assert done.returncode == 0, done.stderr
    assert "  keyturn sign-in olga\n  keyturn sign-in dora\n" in done.stdout

    policy = load_policy(tmp_path / "policy").organisation
    olga, dora = policy.people["olga"], policy.people["dora"]
    assert (olga.name, olga.email, olga.slack[0].user) == ("Olga Berg", "olga@example.com", "U1")
    assert (dora.name, dora.email, dora.slack[0].user) == (DORA, None, "U2")
    assert policy.areas["edge"].owners == ["olga", "dora"]
    key = tmp_path / "policy/keys/keyturn"
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.with_suffix(".pub").read_text().startswith("ssh-ed25519 ")

    add_host(tmp_path / "policy")
    for requester, approver in ((olga, dora), (dora, olga)):
        words = ("policy", "explain", requester.id, "abusers", "clear", "lb1")
        explained = run_keyturn(tmp_path, *words).stdout
        assert "Needs 1 approval from the owners of edge" in explained
        assert approver.name in explained
        assert requester.name not in explained


def test_init_asks_a_terminal_for_what_it_was_not_told(tmp_path: Path):
    with a_terminal(KEYTURN, "init", KEYTURN_POLICY=str(tmp_path / "policy")) as terminal:
        for question, answer in (
            ("First person", "Olga <Berg"),
            ("is not NAME <E-MAIL>, such as", OLGA),
            ("Second person", "Dora Lind"),
            ("Name of the area", "The Edge"),
            ("is not a name such as production", ""),
            ("Do you use Slack", "n"),
        ):
            assert terminal.shows(question), terminal.output
            terminal.press(f"{answer}\n")
        assert terminal.ended() == 0, terminal.output
    policy = load_policy(tmp_path / "policy").organisation
    assert [*policy.people] == policy.areas["production"].owners == ["olga", "dora"]
    with a_terminal(KEYTURN, "init", KEYTURN_POLICY=str(tmp_path / "policy")) as terminal:
        assert terminal.ended() == 1, "it asks nothing where there is a policy"
        assert "nothing was written" in terminal.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--person", "Olga", "--area", "edge"], "give --person twice"),
        (["--person", "Olga", "--person", "Dora"], "and --area"),
        (["--person", "Olga A", "--person", "Olga B", "--area", "edge"], "would have the id olga"),
        (["--person", "王", "--person", "Olga", "--area", "edge"], "in Latin letters"),
        (["--person", "a@b", "--person", "<b", "--area", "edge"], "is not NAME <E-MAIL>"),
        (["--person", "A", "--person", "B", "--area", "The Edge"], "is not a name such as"),
        ([*PEOPLE, "--slack", "T1/U1"], "once for each --person"),
        ([*PEOPLE, "--slack", "T1/U1", "--slack", "olga"], "is not TEAM/USER of Slack"),
        ([*PEOPLE, "--slack", "T1/U1", "--slack", "T1/U1"], "belong to both olga and dora"),
    ],
)
def test_init_names_what_is_wrong_and_writes_nothing(tmp_path: Path, words: list[str], says: str):
    done = run_keyturn(tmp_path, "init", *words)
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "policy").exists()


def test_settings_file_that_is_named_is_read_or_refused(tmp_path: Path):
    settings = tmp_path / "keyturn.env"
    settings.write_text(f"KEYTURN_POLICY={tmp_path / 'elsewhere'}\n")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "bot", *words]
        env = os.environ | {"KEYTURN_SETTINGS": str(settings)}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    done = run("init", *PEOPLE)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "elsewhere/people.yaml").exists()
    settings.unlink()
    refused = run("policy", "check")
    assert refused.returncode == 1
    assert f"cannot read {settings}, which KEYTURN_SETTINGS names" in refused.stderr
