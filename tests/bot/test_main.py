"""The command line as a person uses it: output and exit status."""

import json
import os
import re
import signal
import socket
import tempfile
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from bot.api.timeline import TimelineEventOut
from bot.audit import change_log, events, verification
from bot.audit.event_type import UnknownEvent
from bot.db.database import Database
from bot.integrations import witness_file
from bot.model import signing, times
from bot.model.times import to_microseconds
from runbooks import load_catalogue
from tests.bot.databases import create_sqlite_database
from tests.bot.installation import create_installation
from tests.cli_process import begin, run_keyturn, run_keyturn_in_new_process
from tests.policies import write_policy


@pytest.fixture
def logged(tmp_path: Path) -> Path:
    with create_installation(tmp_path) as tx:
        change_log.append_entry(
            tx,
            UnknownEvent(kind="requested", facts={"source": "slack"}),
            run=1,
            person="dora",
            host="lb1",
        )
        change_log.append_entry(
            tx, events.Refused(summary="\x1b[31mno\x1b[0m\nnever"), run=1, host="lb1"
        )
    return tmp_path


def test_help_names_the_commands(tmp_path: Path):
    help_text = run_keyturn(tmp_path, "--help").stdout
    for command in ("serve", "runbooks", "changelog", "policy", "init", "db"):
        assert command in help_text


@pytest.mark.parametrize("words", ["runbooks", "changelog show", "policy check", "chenge"])
def test_command_in_a_new_process_prints_the_same_as_in_the_test_server(logged: Path, words: str):
    write_policy(logged / "policy")
    afresh, typed = (
        one(logged, *words.split()) for one in (run_keyturn_in_new_process, run_keyturn)
    )
    assert (afresh.returncode, afresh.stderr) == (typed.returncode, typed.stderr)
    assert afresh.stdout == typed.stdout
    assert afresh.stdout or afresh.stderr


def test_runbooks_command_lists_all_runbooks_as_text_and_json(tmp_path: Path):
    listed = run_keyturn(tmp_path, "runbooks").stdout
    assert "Unblock an address that HAProxy has marked as an abuser." in listed
    assert len(listed.splitlines()) == len(load_catalogue())
    assert max(map(len, listed.splitlines())) <= 120
    effects = {
        line.split("  ")[0]: line[len(line.split("  ")[0]) :].split()[0]
        for line in listed.splitlines()
    }
    assert effects["abusers show"] == "check"
    assert effects["abusers clear"] == "change"
    assert effects["service restart"] == "irreversible"
    rows = json.loads(run_keyturn(tmp_path, "runbooks", "--json").stdout)
    assert {"name", "kind", "usage", "summary", "example", "undo", "tag"} <= set(rows[0])


def test_runbooks_command_describes_one_runbook(tmp_path: Path):
    output = run_keyturn(tmp_path, "runbooks", "abusers", "clear").stdout
    assert output.startswith("abusers clear HOST ADDRESS")
    assert "For example: abusers clear lb1 203.0.113.9" in output
    assert "A change, for hosts tagged haproxy." in output
    assert "Undo restores the entry." in output
    strange = run_keyturn(tmp_path, "runbooks", "nothing")
    assert (strange.returncode, "List all: keyturn runbooks" in strange.stderr) == (3, True)


def test_runbooks_command_shows_the_areas_of_matching_hosts(tmp_path: Path):
    assert json.loads(run_keyturn(tmp_path, "runbooks", "--json").stdout)[0]["areas"] == []
    write_policy(tmp_path / "policy")
    rows = json.loads(run_keyturn(tmp_path, "runbooks", "--json").stdout)
    areas = {row["name"]: row["areas"] for row in rows}
    assert areas["uptime check"] == ["edge", "storage", "web"]
    assert areas["zfs pools"] == ["storage"]
    output = run_keyturn(tmp_path, "runbooks", "abusers", "show").stdout
    assert "A check, for hosts tagged haproxy, of the areas edge." in output


def test_changelog_show_prints_one_escaped_line_for_each_entry(logged: Path):
    shown = run_keyturn(logged, "changelog", "show").stdout
    assert len(shown.splitlines()) == 3
    assert "\x1b" not in shown
    assert "\\x1b[31mno" in shown


def test_changelog_show_prints_kinds_as_pages_do_and_finds_them_as_printed(tmp_path: Path):
    with create_installation(tmp_path) as tx:
        change_log.append_entry(tx, events.NoChanges(summary="It is on"), run=1, host="lb1")
    for kind in ("no changes", "no_changes"):
        shown = run_keyturn(tmp_path, "changelog", "show", "--kind", kind).stdout
        assert re.search("run 1 +no changes +- +lb1", shown)
        raw = run_keyturn(tmp_path, "changelog", "show", "--kind", kind, "--json").stdout
        assert json.loads(raw)["kind"] == "no_changes"


def test_changelog_show_prints_what_was_requested_and_the_reason_of_the_approval(tmp_path: Path):
    with create_installation(tmp_path) as tx:
        requested = events.Requested(
            source="cli",
            runbook="abusers clear",
            values={},
            request="abusers clear lb1 203.0.113.9",
            reason="a customer",
        )
        change_log.append_entry(tx, requested, run=1, host="lb1", person="dora")
        approved = events.Approved(digest="ab" * 32, reason="known customer")
        change_log.append_entry(tx, approved, run=1, host="lb1", person="olga")
    lines = run_keyturn(tmp_path, "changelog", "show", "--run", "1").stdout.splitlines()
    assert "Reason: a customer · Request: abusers clear lb1 203.0.113.9" in lines[0]
    assert lines[1].endswith("  Reason: known customer")


def test_changelog_show_and_export_print_json(logged: Path):
    lines = run_keyturn(logged, "changelog", "show", "--json").stdout.splitlines()
    entry, began = (json.loads(lines[n]) for n in (2, 0))
    assert entry["facts"] == {"summary": "\x1b[31mno\x1b[0m\nnever"}
    export = json.loads(run_keyturn(logged, "changelog", "export").stdout.splitlines()[0])
    assert to_microseconds(datetime.fromisoformat(began["at"])) == export["at"]


def test_changelog_show_around_a_time_prints_json_with_iso_times(logged: Path):
    key = signing.load_signing_key(logged / "var" / "changelog.key")
    database = Database(f"sqlite:///{logged / 'var' / 'keyturn.db'}", key)
    with database.transaction() as tx:
        entry = change_log.append_entry(tx, events.EverythingStopped(reason="smoke"))
    database.close()
    shown = run_keyturn(logged, "changelog", "show", "--around", "1 h", "--json", "--within", "2h")
    [event] = [json.loads(line) for line in shown.stdout.splitlines()]
    assert (event["entry"], event["at"]) == (entry.seq, times.format_iso(entry.at))
    assert event.keys() == TimelineEventOut.model_fields.keys()


def test_changelog_verify_counts_witnesses_and_names_the_broken_entry(logged: Path):
    whole = run_keyturn(logged, "changelog", "verify")
    assert (whole.returncode, whole.stdout[:19]) == (0, "3 entries, log inta")

    seen_in = logged / "witness"
    nobody = run_keyturn(logged, "changelog", "verify", KEYTURN_WITNESS=str(seen_in))
    assert "; 0 witness checkpoints match" in nobody.stdout
    ours = signing.load_signing_key(logged / "var" / "changelog.key")
    database = Database(f"sqlite:///{logged / 'var' / 'keyturn.db'}", ours)
    with database.transaction() as tx:
        witness_file.write_checkpoint(seen_in, verification.create_checkpoint(tx))
    database.close()
    seen = run_keyturn(logged, "changelog", "verify", KEYTURN_WITNESS=str(seen_in))
    assert "; 1 witness checkpoints match" in seen.stdout

    database = Database(f"sqlite:///{logged / 'var' / 'keyturn.db'}", signing.SigningKey.create())
    with database.engine.connect() as connection:
        connection.exec_driver_sql("DROP TRIGGER entry_no_update")
        connection.exec_driver_sql("UPDATE entry SET person = 'olga' WHERE seq = 2")
    database.close()
    broken = run_keyturn(logged, "changelog", "verify")
    assert broken.returncode == 1
    assert "BROKEN at entry 2" in broken.stderr


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["changelog", "verify"], 3, "no database in"),
        (["policy", "check", "/nowhere"], 2, "Directory '/nowhere' does not exist"),
        (["policy", "check"], 1, "people.yaml: is missing"),
        (["policy", "check"], 1, "to create one"),
        (["runbok"], 2, "No such command"),
        (["rusn"], 2, "Did you mean"),
        (["abusers", "show", "lb*"], 2, "Request it with: keyturn request abusers show 'lb*'"),
        (["changelog", "show", "--limit", "0"], 2, "not in the range"),
    ],
)
def test_wrong_command_line_prints_one_line_with_the_fix(
    tmp_path: Path, words: list[str], status: int, says: str
):
    result = run_keyturn(tmp_path, *words)
    assert result.returncode == status
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_init_writes_a_policy_that_policy_check_accepts(tmp_path: Path):
    assert run_keyturn(tmp_path, "init", str(tmp_path / "policy")).returncode == 0
    checked = run_keyturn(tmp_path, "policy", "check", str(tmp_path / "policy"))
    assert checked.stdout.startswith("valid, version ")


def test_policy_explain_names_the_decision_and_the_needed_approvals(tmp_path: Path):
    write_policy(tmp_path / "policy")
    words = ("policy", "explain", "dora", "abusers", "clear", "lb1")
    allowed = run_keyturn(tmp_path, *words)
    stranger = run_keyturn(tmp_path, "policy", "explain", "eve", "abusers", "show", "lb1")
    unclear = run_keyturn(tmp_path, "policy", "explain", "dora", "abusers", "clear")
    assert allowed.returncode == 0
    assert "Needs 1 approval from the owners of the edge" in allowed.stdout
    assert (stranger.returncode, stranger.stdout[:3]) == (4, "Not")
    assert (unclear.returncode, "the host is missing" in unclear.stderr) == (2, True)


def test_serve_names_the_variable_of_an_invalid_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEYTURN_PORT", "eighty")
    result = run_keyturn(tmp_path, "serve")
    assert result.returncode == 1
    assert result.stderr == "keyturn: KEYTURN_PORT: must be a whole number\n"


def test_serve_names_a_data_directory_that_cannot_be_created(tmp_path: Path):
    (tmp_path / "var").touch()
    write_policy(tmp_path / "policy")
    result = run_keyturn(tmp_path, "serve")
    assert result.returncode == 1
    assert result.stderr == (
        f"keyturn: the directory {tmp_path}/var cannot be made: File exists. KEYTURN_DATA names "
        "one that Keyturn may write in\n"
    )


def test_serve_reports_a_port_in_use_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_policy(tmp_path / "policy")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setenv("KEYTURN_PORT", str(port))
        result = run_keyturn(tmp_path, "serve")
    assert (result.returncode, result.stderr) == (
        1,
        f"keyturn: cannot listen on 127.0.0.1:{port}: Address already in use. Another program "
        "uses the port: set KEYTURN_PORT to a free one\n",
    )


def test_commands_can_write_to_the_change_log_after_a_failed_start(tmp_path: Path):
    assert run_keyturn(tmp_path, "serve").returncode == 1
    write_policy(tmp_path / "policy")
    assert run_keyturn(tmp_path, "sign-in", "dora").returncode == 0
    verified = run_keyturn(tmp_path, "changelog", "verify")
    assert (verified.returncode, verified.stderr) == (0, "")


WHY = ("--reason", "smoke")
WRITING = (
    ("sign-in", "dora"),
    ("token", "new", "dora", "--scope", "read"),
    ("stop", "all", *WHY),
    ("ban", "dora", "--as", "olga", *WHY),
    ("delegate", "to", "stan", "--as", "olga", "--until", "3 days"),
    ("factors", "forget", "--yes", *WHY),
    ("changelog", "rotate-key"),
    *[("changelog", "acknowledge", "1", "--lost", "1", "--reason", "smoke", "--as", "olga")],
)


@pytest.mark.parametrize("words", WRITING, ids=" ".join)
def test_change_log_begins_with_the_key_entry_whichever_command_writes_first(
    tmp_path: Path, words: tuple[str, ...]
):
    write_policy(tmp_path / "policy")
    var = tmp_path / "var"
    var.mkdir()
    with create_installation(tmp_path / "other") as tx:
        change_log.append_entry(tx, UnknownEvent(kind="requested"), run=1)
        point = replace(verification.create_checkpoint(tx), size=1)
    witness_file.write_checkpoint(tmp_path / "seen", point)
    database = create_sqlite_database(
        var / "keyturn.db", signing.load_signing_key(var / "changelog.key")
    )
    database.close()
    more = {"KEYTURN_WITNESS": str(tmp_path / "seen")} if "acknowledge" in words else {}
    done = run_keyturn(tmp_path, *words, **more)
    assert done.returncode == 0, done.stderr
    shown = run_keyturn(tmp_path, "changelog", "show", "--json").stdout.splitlines()
    kinds = [json.loads(line)["kind"] for line in shown]
    assert kinds[0] == "key"
    assert len(kinds) > 1
    for again in ("verify", "rotate-key", "verify"):
        result = run_keyturn(tmp_path, "changelog", again, **more)
        assert (result.returncode, result.stderr) == (0, ""), again


def test_settings_file_readable_by_others_stops_serve_and_worker_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with create_installation(tmp_path):
        pass
    monkeypatch.chdir(tmp_path)
    settings = tmp_path / ".env"
    settings.write_text("")
    settings.chmod(0o644)
    for words in (["serve"], ["worker", "--site", "ams"]):
        result = run_keyturn(tmp_path, *words)
        assert result.returncode == 1
        assert result.stderr == (
            "keyturn: .env may contain secrets and others can read or write it: chmod 600 it\n"
        )
    assert run_keyturn(tmp_path, "stop", "all", "--reason", "smoke").returncode == 0


def test_policy_writable_by_others_stops_serve_and_policy_check(tmp_path: Path):
    write_policy(tmp_path / "policy")
    (tmp_path / "policy").chmod(0o777)
    another = ["policy", "check", str(tmp_path / "policy")]
    for words in (["serve"], ["policy", "check"], another, ["policy", "page"]):
        result = run_keyturn(tmp_path, *words)
        assert result.returncode == 1
        assert f"{tmp_path}/policy is writable by others: chmod go-w it" in result.stderr


def test_serve_creates_its_files_readable_by_the_owner_only(tmp_path: Path):
    run_keyturn(tmp_path, "serve")
    var = tmp_path / "var"
    modes = {path.name: path.stat().st_mode & 0o777 for path in (var, var / "keyturn.db")}
    assert modes == {"var": 0o700, "keyturn.db": 0o600}


def test_changelog_export_ends_quietly_when_the_pipe_is_closed(logged: Path):
    reader, writer = os.pipe()
    os.close(reader)
    environment = os.environ | {"KEYTURN_DATA": str(logged / "var")}
    with Path(os.devnull).open() as nothing, tempfile.TemporaryFile("w+") as errors:
        streams = [nothing.fileno(), writer, errors.fileno()]
        export = begin(["changelog", "export"], streams, env=environment)
        os.close(writer)
        # As other programs end, so that `pipefail` reports them in the same way.
        assert export.wait() == -signal.SIGPIPE
        assert errors.read() == ""


def test_command_ends_quietly_when_the_pipe_is_closed(tmp_path: Path):
    reader, writer = os.pipe()
    os.close(reader)
    with Path(os.devnull).open() as nothing, tempfile.TemporaryFile("w+") as errors:
        streams = [nothing.fileno(), writer, errors.fileno()]
        listing = begin(["runbooks"], streams, env=dict(os.environ), where=tmp_path)
        os.close(writer)
        assert listing.wait() == -signal.SIGPIPE
        assert errors.read() == ""


def test_upgrade_of_an_empty_database_says_that_it_created_the_schema(tmp_path: Path):
    (tmp_path / "var").mkdir(mode=0o700)
    (tmp_path / "var" / "keyturn.db").touch(mode=0o600)
    created = run_keyturn(tmp_path, "db", "upgrade")
    assert created.stdout == "The database was empty. Created the schema.\n"
    assert run_keyturn(tmp_path, "db", "upgrade").stdout == "The schema is up to date.\n"


def test_changelog_show_suggests_a_name_for_an_unknown_person(logged: Path):
    """Without a valid policy nobody knows who is in it, and nothing of that is said."""
    words = ("changelog", "show", "--person", "dorra")
    (logged / "policy" / "people.yaml").unlink(missing_ok=True)
    nothing = run_keyturn(logged, *words)
    assert (nothing.returncode, nothing.stderr) == (
        3,
        "keyturn: no matching entries in the change log\n",
    )
    write_policy(logged / "policy")
    nobody = run_keyturn(logged, *words)
    assert nobody.returncode == 3
    assert "not in the log: did you mean “dora”?" in nobody.stderr


def test_changelog_show_filters_entries_and_reports_bad_filters(logged: Path):
    def shown(*words: str) -> list[str]:
        return run_keyturn(logged, "changelog", "show", *words).stdout.splitlines()

    assert len(shown("--host", "lb*")) == 2
    assert (
        len(shown("--host", "lb1", "--person", "dora", "--kind", "requested", "--since", "1h"))
        == 1
    )
    nothing = run_keyturn(logged, "changelog", "show", "--host", "web*")
    assert (nothing.returncode, "no matching entries in the change log" in nothing.stderr) == (
        3,
        True,
    )
    unclear = run_keyturn(logged, "changelog", "show", "--around", "noon")
    assert (unclear.returncode, "type 02:00" in unclear.stderr) == (2, True)
    purple = run_keyturn(logged, "changelog", "show", "--state", "purple")
    assert (purple.returncode, "use one of planning" in purple.stderr) == (2, True)
    none = run_keyturn(logged, "changelog", "show", "--around", "1 h", "--host", "lb1")
    assert none.stderr == "No known changes.\n"


@pytest.mark.parametrize(("form", "lines"), [("jsonl", 4), ("csv", 5), ("syslog", 4)])
def test_changelog_export_writes_each_format_and_is_logged(logged: Path, form: str, lines: int):
    result = run_keyturn(logged, "changelog", "export", "--format", form)
    assert (result.returncode, len(result.stdout.splitlines())) == (0, lines)
    (entry,) = run_keyturn(
        logged, "changelog", "show", "--kind", "log exported", "--json"
    ).stdout.splitlines()
    assert json.loads(entry)["facts"]["format"] == form
