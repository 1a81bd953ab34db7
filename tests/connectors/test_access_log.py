import shutil
import subprocess
from datetime import UTC, datetime
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
from connectors.errors import SettingError
from connectors.script import Script
from tests.connectors.understanding import is_understood

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
def test_invalid_access_log_counts_are_not_understood(answer: str):
    assert not is_understood(lambda: parse_traffic(answer))


def test_client_names_and_addresses_that_the_host_resolved_are_parsed():
    assert parse_names((ANSWERS / "names.txt").read_text()) == ("localhost",)
    assert parse_addresses((ANSWERS / "addresses.txt").read_text()) == ("127.0.0.1",)
    assert parse_names("") == ()
    assert parse_addresses("") == ()
    assert not is_understood(lambda: parse_addresses("nonsense STREAM\n"))


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


# The lines of one request of 203.0.113.9, as %t and the rest of LogFormat or log_format have it.
_REQUEST = '[{clf}] "GET / HTTP/1.1" 503 421 "-" "ExampleBot/1.0"'


@pytest.mark.parametrize(
    "line",
    [
        f"203.0.113.9 - - {_REQUEST}",
        f"203.0.113.9 - Ann Lee {_REQUEST}",
        f"www.example.com:443 203.0.113.9 - - {_REQUEST}",
        f"cafe.be:443 203.0.113.9 - - {_REQUEST}",
        f"192.0.2.1:80 203.0.113.9 - ann {_REQUEST}",
        f"[2001:db8::1]:443 203.0.113.9 - - {_REQUEST}",
        f"www.example.com 203.0.113.9 - - {_REQUEST}",
        f'203.0.113.9 - - {_REQUEST} "198.51.100.7" 0.003 0.002',
        f"203.0.113.9 - - {_REQUEST.replace(']', '] www.example.com', 1)}",
        f"203.0.113.9 - - {_REQUEST.replace('{clf}', '{iso}')}",
    ],
)
@pytest.mark.parametrize("awk", ["mawk", "busybox awk"])
def test_request_is_counted_for_its_client_in_each_format(tmp_path: Path, line: str, awk: str):
    assert count_log(tmp_path, line, awk) == "1\t0\n1\t1\t1\t203.0.113.9\tExampleBot/1.0\n"


@pytest.mark.parametrize(
    ("line", "client"),
    [
        (f"www.example.com:443 2001:db8::7 - - {_REQUEST}", "2001:db8::7\tExampleBot/1.0"),
        (f"www.example.com:443 bot.example - - {_REQUEST}", "bot.example\tExampleBot/1.0"),
        (f"bot.example - - {_REQUEST}", "bot.example\tExampleBot/1.0"),
        (f"203.0.113.9 - - {_REQUEST.partition(' 421 ')[0]} 421", "203.0.113.9\t"),
    ],
)
def test_client_of_an_access_log_may_have_a_name_and_no_agent(
    tmp_path: Path, line: str, client: str
):
    assert count_log(tmp_path, line, "mawk") == f"1\t0\n1\t1\t1\t{client}\n"


@pytest.mark.parametrize("line", ['{"status": 200}', f"x {_REQUEST.replace('503', '-')}", "[x] y"])
def test_line_of_an_unknown_access_log_is_counted_as_unparsed(tmp_path: Path, line: str):
    assert count_log(tmp_path, line, "mawk") == "0\t1\n"


def count_log(directory: Path, line: str, awk: str) -> str:
    """Run the script over a log with this line, written at this time."""
    program, *words = awk.split()
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    (directory / "awk").write_text(f'#!/bin/sh\nexec {found} {" ".join(words)} "$@"\n')
    (directory / "awk").chmod(0o755)
    now = datetime.now(UTC)
    times = {"{clf}": f"{now:%d/%b/%Y:%H:%M:%S} +0000", "{iso}": f"{now:%Y-%m-%dT%H:%M:%S}+00:00"}
    for form, text in times.items():
        line = line.replace(form, text)
    (directory / "access.log").write_text(f"{line}\n")
    command = access_log.query_traffic(hours=2, max_rows=5).command
    assert isinstance(command, Shell)
    script = next(word for word in command.argv if isinstance(word, Script))
    return subprocess.run(
        ("sh", "-c", script.text, "keyturn", "2", "5", str(directory / "access.log")),
        env={"PATH": f"{directory}:/usr/bin:/bin", "TZ": "UTC"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
