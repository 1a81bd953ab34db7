"""`keyturn request`, `runs`, `run` and `approve`, against a real service."""

import contextlib
import json
import os
import re
import time
from collections.abc import Generator
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bot.__main__ import main
from bot.audit import change_log
from bot.auth.tokens import CREATE_TOKEN_ADVICE
from bot.cli.client import get_run_exit_status
from bot.cli.context import get_exit_status
from bot.cli.formatting import format_run_details
from bot.cli.history import format_counter_proposal
from bot.db import break_glass, locks, runs, saved_views
from bot.model.approvals import ApprovalRequirements
from bot.model.run import NEEDS_ATTENTION, State
from connectors.command import Shell
from runbooks import Report, Table
from tests.bot.cli.test_terminal import KEYTURN, Terminal, a_terminal
from tests.bot.host_contacts import store_contact
from tests.bot.web import sample_runs
from tests.cli_commands import load_commands
from tests.cli_process import run_command
from tests.playground.service import Service
from tests.policies import write_policy


class CliService:
    """A service, and people who type at it, each with a token of theirs."""

    def __init__(self, service: Service, directory: Path) -> None:
        self.service, self.directory = service, directory
        make = service.keyturn.service.tokens.create_token
        self._tokens = {
            person: make(person=person, scopes=["request", "approve"], days=1, source="cli")[1]
            for person in ("dora", "olga")
        }

    def type(self, person: str, *words: str, **environment: str) -> Result:
        env = {"KEYTURN_URL": self.service.address, "KEYTURN_TOKEN": self._tokens.get(person, "")}
        return CliRunner(env=env | environment).invoke(main, words)

    def token(self, person: str) -> str:
        return self._tokens[person]

    def at_a_terminal(
        self, person: str, *words: str
    ) -> contextlib.AbstractContextManager[Terminal]:
        return a_terminal(
            KEYTURN,
            *words,
            KEYTURN_URL=self.service.address,
            KEYTURN_TOKEN=self._tokens[person],
        )

    def read_json(self, person: str, *words: str) -> Any:
        return json.loads(self.type(person, *words, "--json").stdout)


@pytest.fixture(scope="module")
def cli_service(tmp_path_factory: pytest.TempPathFactory) -> Generator[CliService]:
    directory: Path = tmp_path_factory.mktemp("shop")
    write_policy(directory / "policy")
    with Service(directory) as service:
        yield CliService(service, directory)


def test_failed_run_exits_with_1_and_prints_why(cli_service: CliService):
    # The company has no keys: no host can be reached.
    result = cli_service.type("dora", "request", "uptime", "check", "lb1", "--wait", "30")
    assert result.exit_code == 1
    assert "Failed." in result.stdout
    # One verdict, on one stream.
    assert "failed" not in result.stderr
    assert "requested by dora on lb1" in result.stdout
    assert "/runs/" in result.stdout


def test_request_command_waits_for_the_result_by_default(cli_service: CliService):
    at_once = cli_service.type("dora", "request", "uptime", "check", "lb1", "--wait", "0")
    assert "Running." in at_once.stdout or "Failed." in at_once.stdout
    result = cli_service.type("dora", "request", "uptime", "check", "lb1")
    assert (result.exit_code, "Failed." in result.stdout) == (1, True)


def test_forbidden_command_exits_with_4(cli_service: CliService):
    result = cli_service.type("dora", "run", "1", "--as", "olga")
    assert (result.exit_code, result.stderr) == (
        4,
        f"keyturn: the token belongs to dora, not to olga: {CREATE_TOKEN_ADVICE}\n",
    )


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("run", "999"), 3),
        (("approve", "999", "0" * 10), 3),
        (("hosts", "lb9"), 3),
        (("request", "zfs", "nope"), 2),
        (("request", "uptime", "check", "nope1"), 2),
        (("runs", "--state", "wating"), 2),
        (("runs", "--since", "soon"), 2),
        (("changed", "soon"), 2),
        (("changed", "2026-03-29 02:30 Europe/Paris"), 2),
    ],
)
def test_invalid_command_exits_with_2_and_missing_object_with_3(
    cli_service: CliService, words: tuple[str, ...], status: int
):
    result = cli_service.type("dora", *words)
    assert (result.exit_code, result.stderr[:9]) == (status, "keyturn: "), result.output


def test_help_command_describes_commands_and_runbooks():
    runner = CliRunner()
    assert "Runs:" in runner.invoke(main, ["help"]).stdout
    assert (
        runner.invoke(main, ["help", "request"]).stdout
        == runner.invoke(main, ["request", "-h"]).stdout
    )
    result = runner.invoke(main, ["help", "abusers", "clear"])
    assert result.stdout.startswith("abusers clear HOST ADDRESS")


def test_runs_command_filters_by_relative_and_absolute_times(cli_service: CliService):
    cli_service.type("dora", "request", "uptime", "check", "lb1")
    assert cli_service.type("dora", "runs", "--since", "2 h", "--until", "today").exit_code == 0
    assert cli_service.read_json("dora", "runs", "--since", "2020-01-01 02:00 Europe/Paris") != []
    assert cli_service.read_json("dora", "runs", "--until", "2020-01-01") == []


def test_plan_of_a_check_is_refused(cli_service: CliService):
    for words in (
        ("request", "uptime", "check", "lb1", "--plan"),
        ("plan", "uptime", "check", "lb1"),
    ):
        result = cli_service.type("dora", *words)
        assert result.exit_code == 2
        assert result.stderr == (
            "keyturn: uptime check only reads, so it has no plan: request it instead\n"
        )


def test_runs_are_listed_for_people_and_for_programs(cli_service: CliService):
    for _ in range(3):
        cli_service.type("dora", "request", "uptime", "check", "lb2")
    runs = cli_service.read_json("olga", "runs", "--host", "lb2", "-n", "2")
    assert [run["host"] for run in runs] == ["lb2", "lb2"]
    assert "uptime check lb2" in cli_service.type("olga", "runs", "--person", "dora").stdout
    none = cli_service.type("olga", "runs", "--person", "stan")
    assert (none.exit_code, none.stderr) == (0, "No matching runs.\n")


def test_runs_filter_with_an_unknown_name_exits_with_3(cli_service: CliService):
    result = cli_service.type("olga", "runs", "--person", "dorra")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "“dorra” is not in the policy, and has never requested anything" in result.stderr
    assert "did you mean “dora”?" in result.stderr
    program = cli_service.type("olga", "runs", "--host", "web99", "--json")
    assert (program.exit_code, program.stdout) == (3, "[]\n")


def test_long_standard_input_of_a_step_is_truncated_on_a_terminal_only(cli_service: CliService):
    given = "".join(f"192.0.2.{n} # pingdom\n" for n in range(172))
    step = replace(sample_runs.clear_step(), command=Shell(("tee", "x"), stdin=given))
    with cli_service.service.keyturn.database.transaction() as tx:
        run = sample_runs.add_requested_run(tx)
        number = run.id
        sample_runs.add_pending_run(tx, run, sample_runs.build_plan(run, step))
    passed_on = cli_service.type("olga", "run", str(number)).stdout
    assert ("192.0.2.171" in passed_on, "more lines" in passed_on) == (True, False)
    with cli_service.at_a_terminal("olga", "run", str(number)) as terminal:
        assert terminal.ended() == 0
    assert ("192.0.2.4" in terminal.output, "192.0.2.5" in terminal.output) == (True, False)
    assert f"[… 167 more lines: keyturn run {number} | less …]" in terminal.output


def test_long_report_table_is_truncated_on_a_terminal_only(cli_service: CliService):
    rows = [(f"03:{n:02}", f"sudo {n}") for n in range(60)]
    report = Report("60 things happened", table=Table(("when", "what"), rows))
    with cli_service.service.keyturn.database.transaction() as tx:
        number = sample_runs.add_check(tx, report).id
    passed_on = cli_service.type("olga", "run", str(number)).stdout
    assert ("sudo 59" in passed_on, "more rows" in passed_on) == (True, False)
    with cli_service.at_a_terminal("olga", "run", str(number)) as terminal:
        assert terminal.ended() == 0
    assert ("sudo 39" in terminal.output, "sudo 40" in terminal.output) == (True, False)
    assert f"[… 20 more rows: keyturn run {number} | less …]" in terminal.output


def test_runs_command_lists_and_filters_checks_that_need_attention(cli_service: CliService):
    with cli_service.service.keyturn.database.transaction() as tx:
        ill, well = (
            sample_runs.add_check(tx).id,
            sample_runs.add_check(tx, Report("all is well")).id,
        )
    listed = cli_service.type("olga", "runs", "--state", NEEDS_ATTENTION).stdout
    assert f"{ill}  " in listed
    assert "Needs attention  dora" in listed
    runs = cli_service.read_json("olga", "runs", "--state", "succeeded", "-n", "2")
    assert well in {run["id"] for run in runs}
    assert ill not in {run["id"] for run in runs}
    assert "Needs attention. 2 addresses" in cli_service.type("olga", "run", str(ill)).stdout


def test_missing_token_or_unreachable_service_is_explained(cli_service: CliService):
    result = cli_service.type("nobody", "runs")
    assert (result.exit_code, "KEYTURN_TOKEN is not set" in result.stderr) == (1, True)
    away = cli_service.type("dora", "runs", KEYTURN_URL="http://127.0.0.1:9")
    assert (away.exit_code, "cannot reach" in away.stderr) == (1, True)
    wrong = cli_service.type("dora", "runs", KEYTURN_TOKEN="kt_00000000_x")
    assert (wrong.exit_code, "Unknown token" in wrong.stderr) == (4, True)
    other = cli_service.type("dora", "runs", "--as", "olga")
    assert (other.exit_code, "belongs to dora" in other.stderr) == (4, True)
    for one in (result, wrong, other):
        assert one.stderr.endswith(f"{CREATE_TOKEN_ADVICE}\n")


def test_api_token_is_not_sent_over_plain_http_to_another_host(cli_service: CliService):
    result = cli_service.type("dora", "runs", KEYTURN_URL="http://keyturn.example.com")
    assert (result.exit_code, "must begin with https://" in result.stderr) == (1, True)


def test_no_command_takes_a_token_as_option():
    options = {
        option
        for command in ("request", "again", "runs", "run", "approve", "deny", "withdraw", "undo")
        for parameter in load_commands(main)[command].params
        for option in parameter.opts
    }
    # The first letters of a token name it, and are no secret.
    secret = options - {"--token-prefix"}
    assert not [option for option in secret if "token" in option]


def test_pending_run_is_shown_questioned_approved_denied_and_withdrawn(cli_service: CliService):
    # Put there as the service would have left it: no host is needed to decide.
    from tests.bot.web import sample_runs

    numbers = sample_runs.add_sample_runs(cli_service.service.keyturn.database)
    shown = cli_service.type("olga", "run", str(numbers["pending"]))
    assert shown.exit_code == 0
    waited = cli_service.type("olga", "run", str(numbers["pending"]), "--wait", "0.1")
    assert (waited.exit_code, "Needs approval, needs 1" in waited.stderr) == (5, True)
    assert "needs 1 of the owners of the edge: adam, olga" in shown.stdout
    assert "$ socat" in shown.stdout

    which = cli_service.type("olga", "approve", str(numbers["pending"]))
    assert (which.exit_code, "name the plan" in which.stderr) == (2, True)
    own = cli_service.read_json("olga", "run", str(numbers["own"]))
    mine = cli_service.type("olga", "approve", str(own["id"]), own["digest"][:10])
    assert (mine.exit_code, "you requested it" in mine.stderr) == (4, True)

    keyturn = cli_service.service.keyturn
    with keyturn.database.transaction() as tx:
        asked = sample_runs.add_requested_run(tx)
        version = keyturn.policies.get_policy().version
        plan = sample_runs.build_plan(asked, policy_version=version)
        run = sample_runs.add_pending_run(tx, asked, plan)
    asked = cli_service.type("olga", "question", str(run.id), "Which ticket?")
    assert f"the question is open: keyturn answer {run.id} TEXT" in asked.stdout
    assert cli_service.type("dora", "answer", str(run.id), "4711").exit_code == 0
    given = cli_service.type("olga", "reassign", str(run.id), "adam", "--reason", "yours").stdout
    assert "asked by olga" in given
    assert "answered by dora" in given
    assert "assigned to adam" in given
    cli_service.type("olga", "approve", str(run.id), run.digest[:10])
    with keyturn.database.reading() as tx:
        kinds = [entry.kind for entry in change_log.list_entries_of_run(tx, run.id)]
    assert kinds[kinds.index("approved") - 1] == "token used"
    assert ", approved by olga" in cli_service.type("dora", "runs", "--host", "lb*").stdout

    late = cli_service.type("dora", "deny", str(numbers["denied"]), "--reason", "no")
    assert (late.exit_code, "Olga Owner denied it" in late.stderr) == (1, True)
    back = cli_service.type("olga", "withdraw", str(numbers["own"]))
    assert (back.exit_code, "Withdrawn." in back.stdout) == (0, True)


def test_submit_command_requests_a_plan_by_its_digest(cli_service: CliService):
    from tests.bot.web import sample_runs

    keyturn = cli_service.service.keyturn
    version = keyturn.policies.get_policy().version
    with keyturn.database.transaction() as tx:
        run = sample_runs.add_planned_run(tx, policy_version=version)
    shown = cli_service.type("dora", "run", str(run.id))
    assert shown.exit_code == 0
    assert "needs 1 approval from the owners of the edge: Adam Admin, Olga" in shown.stdout
    assert f"keyturn submit {run.id} {run.short_digest}" in shown.stdout

    other = cli_service.type("dora", "submit", str(run.id), "0" * 10)
    assert (other.exit_code, "is not that of the plan" in other.stderr) == (1, True)
    assert f"begins with {run.short_digest}: the plan is new, or the digest is" in other.stderr
    assert cli_service.type("olga", "submit", str(run.id), run.short_digest).exit_code == 4
    requested = cli_service.type(
        "dora", "submit", str(run.id), run.short_digest, "--reason", "ticket 9", "--wait", "600"
    )
    # It waits for people, and they may take days.
    assert f"run {run.id} waits for 1 more approval from the owners" in requested.stderr
    assert f"keyturn run show {run.id} --wait" in requested.stderr
    # Who cannot approve is told who can, not the command.
    assert (requested.exit_code, "keyturn approve" in requested.stdout) == (5, False)
    assert "needs 1 of the owners of the edge: adam, olga" in requested.stdout
    shown = cli_service.type("olga", "run", str(run.id)).stdout
    # Approvers decide about the reason too, so the plan with this reason has another digest.
    assert f"keyturn approve {run.id} {run.short_digest}" not in shown
    assert f"keyturn approve {run.id} " in shown
    assert "ticket 9" in requested.stdout


def test_document_command_prints_the_texts_that_the_hashes_are_of(cli_service: CliService):
    with cli_service.service.keyturn.database.transaction() as tx:
        run = sample_runs.add_planned_run(tx, policy_version="p1")
    document = cli_service.type("dora", "run", "document", str(run.id)).stdout
    section = cli_service.type("dora", "run", "document", str(run.id), "--section", "1").stdout
    assert sha256(document.encode()).hexdigest() == run.digest
    assert f" {sha256(section.encode()).hexdigest()} " in document
    missing = cli_service.type("dora", "run", "document", str(run.id), "--section", "2")
    assert (missing.exit_code, missing.stderr) == (3, "keyturn: the document has 1 section\n")
    assert cli_service.type("dora", "withdraw", str(run.id)).exit_code in {0, 4}


def test_replan_command_plans_an_outdated_plan_again(cli_service: CliService):
    from tests.bot.web import sample_runs

    with cli_service.service.keyturn.database.transaction() as tx:
        run = sample_runs.add_planned_run(tx)
    stale = cli_service.type("dora", "submit", str(run.id), run.short_digest)
    assert (stale.exit_code, "earlier policy" in stale.stderr) == (1, True)
    # The company has no keys: no host can be read.
    new = cli_service.read_json("dora", "replan", str(run.id), "--wait", "30")
    assert (new["replan_of"], new["state"], new["reason"]) == (run.id, "failed", run.reason)
    assert cli_service.read_json("dora", "run", str(run.id))["state"] == "superseded"


def test_again_command_requests_an_ended_run_with_its_values(cli_service: CliService):
    first = cli_service.read_json("dora", "request", "uptime", "check", "lb1")
    again = cli_service.read_json("olga", "again", str(first["id"]), "--reason", "fixed")
    assert (again["request"], again["ended"]) == ("uptime check lb1", True)
    assert (again["requested_by"], again["reason"]) == ("olga", "fixed")
    assert again["id"] > first["id"]
    shown = cli_service.type("dora", "again", str(first["id"]), "--as", "dora", "--wait", "9")
    assert (shown.exit_code, "requested by dora on lb1" in shown.stdout) == (1, True)


def test_again_plan_of_a_check_is_refused_without_a_run(cli_service: CliService):
    first = cli_service.read_json("dora", "request", "uptime", "check", "lb*")
    result = cli_service.type("dora", "again", str(first["id"]), "--plan")
    assert (result.exit_code, "has no plan" in result.stderr) == (2, True)
    assert [run["id"] for run in cli_service.read_json("dora", "runs", "-n", "1")] == [first["id"]]


def test_again_command_requests_several_hosts_as_one_run(cli_service: CliService):
    first = cli_service.read_json("dora", "request", "uptime", "check", "lb*")
    again = cli_service.read_json("dora", "again", str(first["id"]))
    assert (again["title"], again["hosts"]) == ("uptime check lb*", ["lb1", "lb2"])


def test_again_command_refuses_a_run_that_has_not_ended(cli_service: CliService):
    with cli_service.service.keyturn.database.transaction() as tx:
        run = sample_runs.add_pending_run(tx, sample_runs.add_requested_run(tx))
    result = cli_service.type("dora", "again", str(run.id))
    assert result.exit_code == 2
    assert result.stderr == f"keyturn: Run {run.id} has not ended: it is pending\n"
    assert cli_service.type("dora", "again", "999").exit_code == 3


@pytest.mark.parametrize("state", State)
def test_run_state_determines_the_exit_status(state: State):
    from bot.model.run import ENDED_STATES

    run: dict[str, Any] = {"state": state.value, "ended": state in ENDED_STATES}
    expected = {"planned": 0, "succeeded": 0, "no_changes": 0, "refused": 4, "denied": 4}
    other = 1 if state in ENDED_STATES or state is State.UNKNOWN else 5
    assert get_run_exit_status(run) == expected.get(state.value, other)


def test_check_that_needs_attention_exits_with_1():
    run = {"state": "succeeded", "ended": True}
    assert get_run_exit_status(run | {"report": {"healthy": False}}) == 1
    assert get_run_exit_status(run | {"report": {"healthy": True}}) == 0
    assert get_exit_status(409, "too-late") == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_command_prints_a_script_for_each_shell(shell: str):
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert "_KEYTURN_COMPLETE" in result.stdout


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("keyturn request zf", "zfs"),
        ("keyturn request zfs ", "scrub"),
        ("keyturn com", "completion"),
    ],
)
def test_completion_offers_words_of_runbooks(line: str, offered: str):
    variables = {
        "_KEYTURN_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }
    result = CliRunner(env=variables).invoke(main, [], prog_name="keyturn")
    assert f"plain,{offered}" in result.stdout.splitlines()


def test_completion_offers_hosts_people_and_runs_of_the_service(
    cli_service: CliService, tmp_path: Path
):
    def complete(line: str, **environment: str) -> list[str]:
        variables = {
            "_KEYTURN_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
            "KEYTURN_URL": cli_service.service.address,
            "KEYTURN_TOKEN": cli_service.token("dora"),
            "XDG_CACHE_HOME": str(tmp_path),
        }
        result = CliRunner(env=variables | environment).invoke(main, [], prog_name="keyturn")
        assert result.stderr == ""
        return [item.removeprefix("plain,") for item in result.stdout.split()]

    number = str(cli_service.read_json("dora", "request", "uptime", "check", "lb1")["id"])
    expected = {
        "keyturn request uptime check lb": ["lb1", "lb2"],
        "keyturn request uptime check @hap": ["@haproxy"],
        "keyturn hosts --tag z": ["zfs"],
        "keyturn runs --person o": ["olga"],
        "keyturn runs --state pen": ["pending"],
        f"keyturn run show {number[0]}": [number],
    }
    for line, names in expected.items():
        # On a busy machine, the service may respond after the short time-out of a completion.
        deadline = time.monotonic() + 30
        while not set(names) <= set(completions := complete(line)) and time.monotonic() < deadline:
            continue
        assert set(names) <= set(completions), line
    # Without the service there are no names, and no error.
    away = {"KEYTURN_URL": "http://127.0.0.1:9"}
    assert complete("keyturn runs --person o", **away) == []
    assert complete("keyturn request zf", **away) == ["zfs"]
    assert complete("keyturn hosts l", KEYTURN_TOKEN="") == []


def test_hosts_command_shows_the_last_contact_and_its_error(cli_service: CliService):
    with cli_service.service.keyturn.database.transaction() as tx:
        store_contact(
            tx, "lb2", tried_at=tx.now, answered_at=None, kind="key", error="another key"
        )
    lines = cli_service.type("dora", "hosts", "--tag", "haproxy").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["lb1", "lb2"]
    assert "host key mismatch" in lines[1]
    output = cli_service.type("dora", "hosts", "lb2").stdout
    assert "  another key\n" in output
    assert "keyturn reads and changes, by a key" in output
    assert cli_service.read_json("dora", "hosts", "lb2")["key"] == "changed key"
    assert cli_service.type("dora", "hosts", "lb9").exit_code == 3


def test_hosts_command_shows_a_contact_recorded_by_the_service(cli_service: CliService):
    keyturn = cli_service.service.keyturn
    assert cli_service.read_json("dora", "hosts", "nas1")["status"] == "never contacted"
    keyturn.fleet.on_contact("nas1", None)
    keyturn.contacts.write_contacts()
    assert cli_service.read_json("dora", "hosts", "nas1")["status"] == "reachable"


def test_locks_command_lists_host_locks_with_their_runs(cli_service: CliService):
    assert cli_service.type("dora", "locks").stderr == "No locked hosts.\n"
    with cli_service.service.keyturn.database.transaction() as tx:
        # One that is over, so that the service, which is at work, does nothing with it.
        run = sample_runs.add_succeeded_run(tx, sample_runs.add_requested_run(tx, host="web1")).id
        locks.take_lock(tx, "web1", run)
    assert cli_service.type("dora", "locks").stdout.startswith(
        f"web1: locked by run {run} of dora since "
    )
    assert [one["host"] for one in cli_service.read_json("dora", "locks")] == ["web1"]
    with cli_service.service.keyturn.database.transaction() as tx:
        locks.release_locks(tx, run)


def test_run_resolve_command_settles_an_unknown_outcome_for_owners_only(cli_service: CliService):
    from tests.bot.web import sample_runs

    number = str(sample_runs.add_sample_runs(cli_service.service.keyturn.database)["unknown"])
    why = ("--reason", "looked at lb1, it is done")
    result = cli_service.type("dora", "run", "resolve", number, "--result", "succeeded", *why)
    assert result.exit_code == 4
    assert "Only an owner of the edge can resolve this run" in result.stderr
    assert (
        cli_service.type("olga", "run", "resolve", number, "--result", "gone", *why).exit_code == 2
    )
    assert cli_service.type("olga", "run", "resolve", number, "--result", "failed").exit_code == 2
    result = cli_service.type("olga", "run", "resolve", number, "--result", "succeeded", *why)
    assert result.exit_code == 0
    assert "Succeeded. Resolved as succeeded by Olga" in result.stdout
    assert "looked at lb1, it is done" in cli_service.type("olga", "run", number).stdout
    late = cli_service.type("olga", "run", "resolve", number, "--result", "failed", *why)
    assert late.exit_code == 1
    assert "only a run with an unknown outcome can be resolved" in late.stderr


def test_changed_command_lists_changes_with_their_approvers(cli_service: CliService):
    with cli_service.service.keyturn.database.transaction() as tx:
        done = sample_runs.add_succeeded_run(tx, sample_runs.add_requested_run(tx, host="web1")).id
        # A moment is looked for by the second.
        sample_runs.add_requested_run(tx, host="nas1")
    result = cli_service.type("dora", "changed", "--host", "web1")
    line = next(one for one in result.stdout.splitlines() if f"run {done} " in one)
    assert "abusers clear web1 203.0.113.9" in line
    assert "on web1, by dora, approved by olga: Verified" in line
    assert "nas1" not in result.stdout
    none = cli_service.type("dora", "changed", "2020-01-01 02:00")
    assert (none.exit_code, none.stderr) == (0, "")
    assert re.fullmatch(
        r"Between 2020-01-01 01:00:00\S* and 2020-01-01 03:00:00\S*:\nNo known changes.\n",
        none.stdout,
    )
    heading, _, _ = cli_service.type("dora", "changed", "1h").stdout.partition(":\n")
    until = datetime.fromisoformat(heading.partition(" and ")[2])
    assert until <= datetime.now(UTC), "no time in the future"
    wrong = cli_service.type("dora", "changed", "soon")
    assert (wrong.exit_code, "is not a time" in wrong.stderr) == (2, True)
    events = cli_service.read_json("dora", "changed", "1 min", "--host", "web1")["events"]
    assert done in [one["run"] for one in events]


def test_pending_command_prints_the_commands_to_type(cli_service: CliService):
    with cli_service.service.keyturn.database.transaction() as tx:
        run = sample_runs.add_pending_run(tx, sample_runs.add_requested_run(tx))
    assert f"keyturn approve {run.id} " in cli_service.type("olga", "pending").stdout
    assert run.id in [one["id"] for one in cli_service.read_json("olga", "pending")["runs"]]
    assert cli_service.type("dora", "pending").stderr == "Nothing pending.\n"
    service = cli_service.service.keyturn.service
    service.ask_question(run.id, person="adam", text="which ticket?")
    service.reassign_run(run.id, person="adam", assignee="olga", reason="yours")
    asked = cli_service.type("dora", "pending").stdout
    assert "adam asks: which ticket?\n        keyturn answer" in asked
    assert "assigned to you by adam: yours" in cli_service.type("olga", "pending").stdout


@pytest.mark.parametrize(
    ("requirements", "command"),
    [
        (ApprovalRequirements(requires_signature=True), "keyturn sign {id}"),
        (
            ApprovalRequirements(requires_second_factor=True),
            "approve it with your second factor on {page}",
        ),
    ],
)
def test_pending_command_prints_how_a_plan_with_more_needs_is_approved(
    cli_service: CliService, requirements: ApprovalRequirements, command: str
):
    with cli_service.service.keyturn.database.transaction() as tx:
        run = sample_runs.add_pending_run(tx, sample_runs.add_requested_run(tx))
        runs.amend_run(tx, run, requirements=requirements)
    listed = cli_service.read_json("olga", "pending")["runs"]
    (page,) = [one["page"] for one in listed if one["id"] == run.id]
    shown = cli_service.type("olga", "pending").stdout
    command = command.format(id=run.id, page=page)
    assert f"{command}, or keyturn deny {run.id} " in shown
    assert f"keyturn approve {run.id} " not in shown
    # The page of the run says the same to those who may approve it, and nothing to others.
    assert f"  {command}\n" in cli_service.type("olga", "run", str(run.id)).stdout
    assert command not in cli_service.type("dora", "run", str(run.id)).stdout


def test_terminal_has_headings_colours_and_relative_times(cli_service: CliService):
    cli_service.type("dora", "request", "uptime", "check", "lb1")
    with cli_service.at_a_terminal("dora", "runs", "-n", "1") as terminal:
        assert terminal.ended() == 0
    assert "\x1b[1mRUN" in terminal.output
    assert "\x1b[31mFailed" in terminal.output
    assert " s ago" in terminal.output
    environment = {
        "KEYTURN_URL": cli_service.service.address,
        "KEYTURN_TOKEN": cli_service.token("dora"),
    }
    piped = run_command(
        ["runs", "-n", "1"], env=os.environ | environment | {"TZ": "Asia/Kolkata"}
    ).stdout
    assert ("RUN" in piped, "\x1b" in piped) == (False, False)
    assert re.search(r"\d\d:\d\d\+05:30  Failed", piped)
    assert re.search(r" \d\d:\d\dZ  Failed", cli_service.type("dora", "runs", "--utc").stdout)
    assert re.search(r"T\d\d:\d\d:\d\dZ  Failed", cli_service.type("dora", "runs", "--iso").stdout)


def test_no_color_setting_removes_terminal_colours(cli_service: CliService):
    with a_terminal(
        KEYTURN,
        *("hosts", "--url", cli_service.service.address),
        KEYTURN_TOKEN=cli_service.token("dora"),
        NO_COLOR="1",
    ) as terminal:
        assert terminal.ended() == 0
    assert "LAST CONTACT" in terminal.output
    assert "\x1b[" not in terminal.output


def test_errors_are_json_with_the_exit_status_when_json_is_wanted(cli_service: CliService):
    for words, status in ((("run", "999"), 3), (("runs", "--limit", "x"), 2), (("aprove",), 2)):
        result = cli_service.type("dora", *words, "--json")
        error = json.loads(result.stderr)
        assert (result.exit_code, error["status"], result.stdout) == (status, status, "")
        assert error["error"]


def test_approve_command_asks_for_confirmation_of_an_irreversible_plan(cli_service: CliService):
    keyturn = cli_service.service.keyturn
    with keyturn.database.transaction() as tx:
        asked = sample_runs.add_requested_run(tx)
        step = replace(sample_runs.clear_step(), undo=None, no_undo_reason="it is gone")
        plan = sample_runs.build_plan(
            asked, step, policy_version=keyturn.policies.get_policy().version
        )
        run = sample_runs.add_pending_run(tx, asked, plan)
    approve = ("approve", str(run.id), run.short_digest)
    with cli_service.at_a_terminal("olga", *approve) as terminal:
        assert terminal.shows("cannot be undone: it is gone")
        assert terminal.shows(f"Approve plan {run.short_digest}? [y/N]")
        terminal.press("n\n")
        assert terminal.ended() == 1
    assert cli_service.read_json("olga", "run", str(run.id))["state"] == "pending"
    with cli_service.at_a_terminal("olga", *approve, "--yes", "--wait", "0") as terminal:
        terminal.ended()
    assert cli_service.read_json("olga", "run", str(run.id))["approved_by"] == ["olga"]


def test_break_glass_command_names_the_page_and_review_records_findings(cli_service: CliService):
    with cli_service.service.keyturn.database.transaction() as tx:
        run = sample_runs.add_pending_run(tx, sample_runs.add_requested_run(tx))
        break_glass.request_break_glass(tx, run=run.id, person="adam", reason="the shop is down")
        break_glass.activate_break_glass(tx, run.id, until=tx.now, factor="f")
    pending = cli_service.type("olga", "pending").stdout
    assert f"{run.id}  review     adam used break-glass: the shop is down" in pending
    shown = cli_service.type("olga", "break-glass", str(run.id))
    assert (
        shown.exit_code,
        f"open {cli_service.service.address}/runs/{run.id}" in shown.stderr,
    ) == (
        4,
        True,
    )
    findings = ("--findings", "it was down, and this was right")
    assert cli_service.type("olga", "review", str(run.id), *findings).exit_code == 0
    assert "adam used break-glass" not in cli_service.type("olga", "pending").stdout


def test_break_glass_command_names_the_form_for_a_request_by_terminal(cli_service: CliService):
    with cli_service.service.keyturn.database.transaction() as tx:
        requested = sample_runs.add_requested_run(tx, source="cli")
        run = sample_runs.add_pending_run(tx, requested)
    shown = cli_service.type("olga", "break-glass", str(run.id))
    form = f"{cli_service.service.address}/runbooks/form?runbook={run.runbook.replace(' ', '+')}&"
    assert (shown.exit_code, form in shown.stderr) == (4, True)


def test_counter_proposal_prints_both_values_and_the_accept_command(cli_service: CliService):
    with cli_service.service.keyturn.database.transaction() as tx:
        run = sample_runs.add_pending_run(tx, sample_runs.add_requested_run(tx))
    # The company has no keys: the host cannot be read for the other plan.
    new = cli_service.read_json(
        "olga", "counter", str(run.id), "address=203.0.113.10", "--wait", "30"
    )
    assert (new["proposal_for"], new["values"]["address"]) == (run.id, "203.0.113.10")
    twice = cli_service.type("olga", "counter", str(run.id), "address")
    assert (twice.exit_code, "FIELD=VALUE" in twice.stderr) == (2, True)
    proposal: dict[str, Any] = {
        "run": {"id": 13, "proposal_for": 12, "digest": "1234567890abc"},
        "proposed_by": "olga",
        "reason": "ours",
        "changes": [{"field": "address", "requested": "192.0.2.1", "proposed": "192.0.2.2"}],
    }
    assert format_counter_proposal(proposal["run"], proposal) == [
        "proposed by olga for run 12: ours",
        "address: 192.0.2.1 → 192.0.2.2",
        "keyturn accept 13 1234567890, or keyturn withdraw 13",
    ]
    with cli_service.service.keyturn.database.transaction() as tx:
        plan = sample_runs.add_planned_run(tx)
    submit = f"keyturn submit {plan.id} {plan.short_digest}, or keyturn withdraw {plan.id}"
    assert submit in cli_service.type("dora", "pending").stdout
    assert cli_service.type("dora", "withdraw", str(plan.id)).exit_code == 0
    assert cli_service.type("dora", "accept", str(run.id), "0" * 10).exit_code == 1


def test_views_command_lists_saved_views(cli_service: CliService):
    assert cli_service.type("dora", "views").stderr == "No saved views.\n"
    with cli_service.service.keyturn.database.transaction() as tx:
        kept = saved_views.store_view(
            tx, person="dora", name="edge", query="area=edge&state=failed"
        )
    output = cli_service.type("dora", "views").stdout
    assert f"{kept.id}  edge: area: edge, state: failed" in output
    assert f"{cli_service.service.address}/views/{kept.id}" in output


def test_run_details_show_approver_step_and_last_lines_of_output():
    step = {
        "n": 1,
        "title": "Let 203.0.113.9 back in",
        "host": "lb1",
        "state": "failed",
        "command": "socat -",
        "undo": None,
        "no_undo": "it is gone",
        "before": "marked",
        "after": "",
        "status": 127,
        "error": "the program is not there",
        "output": "".join(f"line {n}\n" for n in range(25)),
    }
    vote = {"person": "adam", "approves": True, "on_behalf_of": "olga", "reason": "known customer"}
    text = format_run_details(
        {
            "id": 7,
            "title": "abusers clear lb1",
            "state": "failed",
            "label": "Failed",
            "started_at": "2026-03-01T02:01:31Z",
            "actions": [],
            "review": None,
            "counter_proposal": None,
            "summary": "Step 1 of 1 failed.",
            "needs_attention": False,
            "requested_by": "agent:triage-bot",
            "requested_for": "dora",
            "hosts": ["lb1"],
            "requested_at": "2026-03-01T02:00:00Z",
            "reason": "ticket 4711",
            "decisions": [vote | {"at": "2026-03-01T02:01:30Z"}],
            "questions": [],
            "plan": {
                "current_state": "203.0.113.9 is marked",
                "state_label": "State before",
                "planned_at": None,
                "notes": [],
                "steps": [step],
            },
            "schedule": None,
            "report": None,
            "page": "https://keyturn.example.com/runs/7",
        }
    ).splitlines()
    assert text[2:5] == [
        "  requested by agent:triage-bot for dora on lb1, 2026-03-01 02:00Z: ticket 4711",
        "  approved by adam on behalf of olga, 2026-03-01 02:01Z: known customer",
        "  State before: 203.0.113.9 is marked",
    ]
    assert "     marked → -" in text
    assert "     exit status 127" in text
    assert text[-22:-20] == ["     [… 5 more lines: --json …]", "     | line 5"]
    assert text[-2] == "     | line 24"


def test_request_command_prints_an_active_freeze_for_changes(cli_service: CliService):
    freezes = cli_service.directory / "policy" / "freezes.yaml"
    before = freezes.read_text() if freezes.exists() else ""
    times = 'from: "2000-01-01 00:00", until: "2200-01-01 00:00"'
    freezes.write_text(f"freezes:\n  - {{name: the sale, areas: [edge], {times}}}\n")
    try:
        asked = cli_service.type(
            "dora", "request", "abusers", "mark", "lb1", "203.0.113.9", "--wait", "0"
        )
        looked = cli_service.type("dora", "request", "abusers", "show", "lb1", "--wait", "0")
    finally:
        freezes.write_text(before)
    assert asked.stderr.startswith("on hold after approval: the edge is frozen until 2200-01-01")
    assert "frozen" not in looked.stderr
