from pathlib import Path

import pytest

from connectors import access_log
from connectors.access_log import (
    AgentTraffic,
    WebTraffic,
    parse_addresses,
    parse_names,
    parse_traffic,
)
from connectors.command import Answer, Shell, find_failure
from connectors.errors import ParseError, SettingError

ANSWERS = Path(__file__).parent / "answers" / "access_log"
COUNTED = (ANSWERS / "counted.txt").read_text()


def test_access_log_counts_per_client_and_agent_are_parsed():
    assert parse_traffic(COUNTED) == WebTraffic(
        requests=7,
        unparsed_lines=1,
        clients=(
            AgentTraffic(
                "198.51.100.7", "curl/8", requests=6, peak_requests=4, refused_requests=1
            ),
            AgentTraffic("127.0.0.1", "Mozilla (compatible; Googlebot/2.1)", 1, 1, 0),
        ),
    )
    assert parse_traffic("0\t0\n") == WebTraffic(0, 0, ())


def test_user_agent_with_tabs_and_quotes_is_parsed_whole():
    (client,) = parse_traffic("1\t0\n1\t1\t0\t203.0.113.9\ta\tb'$(id)\n").clients
    assert client.agent == "a\tb'$(id)"


@pytest.mark.parametrize(
    "answer", ["", "nonsense\n", "7\n", "7\t1\nmany\t1\t0\ta\tb\n", "7\t1\n6\t4\t1\t203.0.113.9\n"]
)
def test_invalid_access_log_counts_are_a_parse_error(answer: str):
    with pytest.raises(ParseError):
        parse_traffic(answer)


def test_client_names_and_addresses_that_the_host_resolved_are_parsed():
    assert parse_names((ANSWERS / "names.txt").read_text()) == ("localhost",)
    assert parse_addresses((ANSWERS / "addresses.txt").read_text()) == ("127.0.0.1",)
    assert parse_names("") == ()
    assert parse_addresses("") == ()
    with pytest.raises(ParseError):
        parse_addresses("nonsense STREAM\n")


@pytest.mark.parametrize(
    "files",
    [
        "",
        "access.log",
        "/var/log/a; id",
        "/var/log/$(id)",
        "/var/log/`id`",
        "/var/log/a\n/etc/passwd",
        "/var/log/a' 'b",
        "/var/log/{a,b}",
        "-delete",
        "/var/log/a -delete",
        "/var/log/[a]",
        "/var/log/a|b",
    ],
)
def test_access_log_files_setting_that_is_no_file_pattern_is_refused(files: str):
    shell = access_log.query_traffic(hours=1, max_rows=1).command
    assert isinstance(shell, Shell)
    with pytest.raises(SettingError):
        shell.resolve({"access_log.files": files}, sudo=False)


def test_host_without_access_logs_gets_an_error_that_names_the_setting():
    command = access_log.query_traffic(hours=1, max_rows=1).command
    answer = Answer(3, "", "no access log was written to")
    assert "set access_log.files" in str(find_failure(command, answer, frozenset({0})))
