"""Commands of HAProxy's runtime API, and how their answers are judged."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from connectors import haproxy
from connectors.command import Answer, QueryCommand, Shell, find_failure
from connectors.errors import CommandError, ParseError, SettingError
from connectors.stick_table import InvalidKeyError, Rate, TableEntry, TableHead, parse_heads
from tests.scripted_fleet import ScriptedFleet

ANSWERS = Path(__file__).parent / "answers" / "haproxy"
HTTP = TableHead("http", "ip", 204800, 5)
ENTRY = TableEntry(
    "203.0.113.9",
    0,
    1000,
    counters={"gpc0": 57, "conn_cnt": 3, "conn_cur": 2, "gpt0": 0},
    rates={"conn_rate": Rate(43, 100_000)},
)
CHANGES: list[Shell] = [
    haproxy.clear_entry(HTTP, "203.0.113.9"),
    haproxy.mark_entry(HTTP, "203.0.113.9", "gpc0", 1),
    haproxy.restore_entry(HTTP, ENTRY, {"gpc0": "gpc0"}),
]
QUERIES: list[QueryCommand] = [
    haproxy.query_tables().command,
    haproxy.query_table("http").command,
    haproxy.query_entry(HTTP, "203.0.113.9").command,
    haproxy.query_entries_at_least("http", "gpc0", 1).command,
    haproxy.query_has_counter("http", "gpc0").command,
]


def recorded(name: str) -> str:
    return (ANSWERS / f"{name}.txt").read_text()


def stdin_of(command: QueryCommand) -> str:
    assert isinstance(command, Shell)
    return command.stdin


def describe_outcome(command: QueryCommand, status: int, out: str, err: str = "") -> str:
    error = find_failure(command, Answer(status, out, err), frozenset({0}))
    return str(error or "done")


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (haproxy.query_tables().command, "show table\n"),
        (haproxy.query_table("http").command, "show table http\n"),
        (haproxy.query_entry(HTTP, "203.0.113.9").command, "show table http key 203.0.113.9\n"),
        (
            haproxy.query_entries_at_least("http", "gpc0", 3).command,
            "show table http data.gpc0 ge 3\n",
        ),
        (CHANGES[0], "clear table http key 203.0.113.9\n"),
        (CHANGES[1], "set table http key 203.0.113.9 data.gpc0 1\n"),
        (CHANGES[2], "set table http key 203.0.113.9 data.gpc0 57\n"),
    ],
)
def test_haproxy_command_is_one_line_with_a_newline(command: QueryCommand, line: str):
    assert stdin_of(command) == line


def test_restore_of_a_haproxy_entry_sets_counters_and_no_rates():
    every = {name: name for name in (*ENTRY.counters, *ENTRY.rates)}
    line = stdin_of(haproxy.restore_entry(HTTP, ENTRY, every))
    assert line == "set table http key 203.0.113.9 data.gpc0 57 data.conn_cnt 3\n"


@pytest.mark.parametrize(
    "word", ["a b", "a;b", "a\\", "a\nb", "a\rb", "a\0b", "<<", "", "é", "\t"]
)
def test_haproxy_command_refuses_a_word_with_special_characters(word: str):
    with pytest.raises(haproxy.UnsafeWordError):
        haproxy.query_table(word)
    with pytest.raises(haproxy.UnsafeWordError):
        haproxy.mark_entry(HTTP, "203.0.113.9", word or " ", 1)


def test_haproxy_table_refuses_a_key_of_another_type():
    for build in (haproxy.query_entry, haproxy.clear_entry):
        with pytest.raises(InvalidKeyError):
            build(HTTP, "::1")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("\n", "done"),
        ("", "without an answer"),
        ("2.6-looks-only", "is read-only"),
        ("2.6-no-table", "no such table"),
        ("2.6-in-use", "a connection of this client is open"),
        ("3.2-invalid-key", "does not accept this as a key"),
        ("2.6-unknown-command", "not the runtime socket"),
        ("3.2-unknown-command", "not the runtime socket"),
        ("Data type not stored in this table\n\n", "has no such counter"),
        ("Something new\n\n", "output: Something new"),
    ],
)
def test_haproxy_change_succeeds_only_with_an_empty_line(change: Shell, answer: str, words: str):
    out = recorded(answer) if answer[:1].isdigit() else answer
    assert words in describe_outcome(change, 0, out)


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("2.6-no-table", "no such table"),
        ("3.2-no-table", "no such table"),
        ("2.6-hidden", "level operator"),
        ("3.2-hidden", "level operator"),
        ("3.2-invalid-key", "does not accept this as a key"),
        ("2.6-unknown-command", "not the runtime socket"),
    ],
)
def test_haproxy_error_is_not_taken_for_an_answer(query: QueryCommand, answer: str, words: str):
    assert words in describe_outcome(query, 0, recorded(answer))


@pytest.mark.parametrize("version", ["2.6", "3.2"])
@pytest.mark.parametrize(
    "name", ["tables", "http", "www", "marked", "one", "absent", "arrays", "strings"]
)
def test_recorded_haproxy_tables_are_no_errors(version: str, name: str):
    assert (
        describe_outcome(haproxy.query_table("http").command, 0, recorded(f"{version}-{name}"))
        == "done"
    )


@pytest.mark.parametrize(
    ("status", "err", "words"),
    [
        (
            1,
            '2026/11/21 08:32:34 socat[26150] E connect(, AF=1 "/run/haproxy/admin.sock", 31): '
            "Permission denied",
            "the login may not open HAProxy's socket",
        ),
        (
            1,
            '2026/11/21 08:32:35 socat[26214] E connect(, AF=1 "/run/haproxy/nosuch.sock", 32): '
            "No such file or directory",
            "HAProxy has no such socket",
        ),
        (
            1,
            '2026/11/21 08:32:37 socat[26396] E connect(, AF=1 "/run/haproxy/admin.sock", 31): '
            "Connection refused",
            "HAProxy is stopped",
        ),
        (
            127,
            "timeout: failed to run command 'socat': No such file or directory",
            "install socat",
        ),
        (127, "bash: socat: command not found", "install socat"),
    ],
)
def test_errors_of_socat_and_the_haproxy_socket_are_explained(status: int, err: str, words: str):
    for command in (CHANGES[0], haproxy.query_tables().command):
        assert words in describe_outcome(command, status, "", err)


@pytest.mark.parametrize(
    "path",
    [
        "/run/haproxy/admin.sock,mode=666",
        "/run/x!!/etc/cron.d/x",
        "EXEC:reboot",
        "run/haproxy/admin.sock",
        "/run/haproxy/admin.sock:1",
        '/run/"x"',
        "/run/x y",
        "",
        "-",
    ],
)
def test_haproxy_socket_setting_with_socat_options_is_refused(path: str):
    with pytest.raises(SettingError, match=r"haproxy\.socket"):
        CHANGES[0].resolve({"haproxy.socket": path}, sudo=True)


def test_haproxy_socket_of_the_inventory_is_used_without_sudo():
    command = CHANGES[0].resolve({"haproxy.socket": "/run/haproxy/keyturn.sock"}, sudo=True)
    assert command.words == ("socat", "-t5", "stdio", "UNIX-CONNECT:/run/haproxy/keyturn.sock")


def test_missing_haproxy_table_error_lists_the_tables():
    heads = parse_heads(recorded("2.6-tables"))
    assert haproxy.find_table_head("http", heads).name == "http"
    with pytest.raises(CommandError, match=r"no table HTTP; its tables: http, tbl-arrays, .*www"):
        haproxy.find_table_head("HTTP", heads)
    with pytest.raises(CommandError, match="its tables: none"):
        haproxy.find_table_head("http", ())
    assert haproxy.query_table_head("www").parse(recorded("2.6-tables")).used == 5


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("# table: http, type: ip, size:204800, used:5\n\n", True),
        ("Filter entry #1: Unknown data type\n\n", False),
        ("Filter entry #1: Data type not stored in this table\n\n", False),
    ],
)
def test_haproxy_table_reports_whether_it_stores_a_counter(answer: str, kept: bool):
    query = haproxy.query_has_counter("http", "gpc0")
    assert describe_outcome(query.command, 0, answer) == "done"
    assert query.parse(answer) is kept


def test_invalid_answer_about_a_haproxy_counter_is_a_parse_error():
    with pytest.raises(ParseError):
        haproxy.query_has_counter("http", "gpc0").parse("\n")


KEPT = "# table: t, type: ip, size:9, used:0\n\n"
UNKNOWN = "Filter entry #1: Unknown data type\n\n"
NOT_STORED = "Filter entry #1: Data type not stored in this table\n\n"


@pytest.mark.parametrize(
    ("counter", "answers", "spelling"),
    [
        ("conn_cnt", {}, "conn_cnt"),
        ("gpc0", {"gpc0": KEPT}, "gpc0"),
        ("gpc0", {"gpc0": NOT_STORED, "gpc[0]": KEPT}, "gpc[0]"),
        ("gpc0", {"gpc0": NOT_STORED, "gpc[0]": UNKNOWN, "gpc": KEPT}, "gpc"),
        ("gpt0", {"gpt0": KEPT}, "gpt0"),
        ("gpt1", {"gpt[1]": KEPT}, "gpt[1]"),
        ("gpc1", {"gpc1": NOT_STORED, "gpc[1]": UNKNOWN}, None),
        ("gpc2", {"gpc[2]": UNKNOWN}, None),
        ("gpc0", {"gpc0": NOT_STORED, "gpc[0]": UNKNOWN, "gpc": NOT_STORED}, None),
    ],
)
def test_haproxy_counter_is_spelled_as_its_version_requires(
    counter: str, answers: Mapping[str, str], spelling: str | None
):
    fleet = ScriptedFleet(
        {
            ("lb1", haproxy.query_has_counter("t", name).command): answer
            for name, answer in answers.items()
        },
        hosts=["lb1"],
    )
    names = haproxy.read_counter_names(fleet.run_query, "lb1", "t", [counter])
    assert names == ({counter: spelling} if spelling else {})
