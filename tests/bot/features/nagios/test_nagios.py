"""`keyturn nagios`, against a real service, read by the grammar of the Monitoring Plugins."""

import json
import re
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli_process import run_command
from tests.playground.service import Service
from tests.policies import write_policy

# https://www.monitoring-plugins.org/doc/guidelines.html#AEN197
_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?"
_RANGE = rf"(?:@?(?:~:|{_NUMBER}:)?(?:{_NUMBER})?)?"
_PERFORMANCE = re.compile(
    rf"(?P<label>[^ ='|]+)=(?P<value>{_NUMBER})(?:us|ms|s|%|[KMGT]?B|c)?"
    rf"(?:;{_RANGE}){{0,2}}(?:;(?:{_NUMBER})?){{0,2}}"
)
_STATUSES = ["OK", "WARNING", "CRITICAL", "UNKNOWN"]


@dataclass
class Output:
    status: str
    summary: str
    details: list[str]
    values: dict[str, float]


def check(*words: str, token: str = "") -> Output:
    """Run the check, and read its output as a monitoring system does."""
    ended = run_command(["nagios", *words], env={"KEYTURN_TOKEN": token})
    assert ended.stderr == ""
    first, *details = ended.stdout.splitlines()
    text, _, performance = first.partition("|")
    assert all("|" not in line for line in details)
    values: dict[str, float] = {}
    for one in performance.split():
        found = _PERFORMANCE.fullmatch(one)
        assert found is not None, one
        values[found["label"]] = float(found["value"])
    status = _STATUSES[ended.returncode]
    begin = f"KEYTURN {status}: "
    assert text.startswith(begin)
    return Output(status, text.removeprefix(begin).strip(), details, values)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Service]:
    directory: Path = tmp_path_factory.mktemp("shop")
    write_policy(directory / "policy")
    with Service(directory, slack="") as started:
        yield started


def create_token(service: Service, person: str) -> str:
    tokens = service.keyturn.service.tokens
    return tokens.create_token(person=person, scopes=["read"], days=1, source="cli")[1]


def test_health_of_a_service_is_printed_as_a_plugin_does(service: Service, tmp_path: Path):
    file = tmp_path / "token"
    file.write_text(create_token(service, "olga") + "\n")
    output = check("--url", service.address, "--token-file", str(file))
    assert output.status == "WARNING"
    assert output.values["errors"] == 0
    # It has no witnesses.
    assert output.values["warnings"] >= 1
    assert 0 < output.values["time"] < 60
    assert "KEYTURN_WITNESSES" in "\n".join([output.summary, *output.details])


def test_token_that_may_not_read_the_health_is_unknown(service: Service):
    output = check("--url", service.address, token=create_token(service, "dora"))
    assert output.status == "UNKNOWN"
    assert "Only people who may stop everything" in output.summary
    assert check("--url", service.address, token="kt_wrong").status == "UNKNOWN"


@pytest.mark.parametrize(
    ("words", "token", "message"),
    [
        ("", "kt_x", "--url"),
        ("--url http://keyturn.example.com", "kt_x", "must begin with https://"),
        ("--url ftp://keyturn.example.com", "kt_x", "invalid KEYTURN_URL"),
        ("--url https://keyturn.example.com --timeout 0", "kt_x", "--timeout"),
        ("--url https://keyturn.example.com --token-file /nowhere", "", "No such file"),
        ("--url https://keyturn.example.com --nothing", "kt_x", "--nothing"),
        ("--url https://keyturn.example.com", "", "KEYTURN_TOKEN has no token"),
        ("--url https://keyturn.example.com", "two words", "KEYTURN_TOKEN has no token"),
    ],
)
def test_wrong_use_is_unknown_and_never_critical(words: str, token: str, message: str):
    output = check(*words.split(), token=token)
    assert output.status == "UNKNOWN"
    assert message in output.summary


def test_service_that_does_not_answer_is_critical():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        output = check("--url", url, token="kt_x")
    assert output.status == "CRITICAL"
    assert "does not answer" in output.summary


@contextmanager
def _serve(status: int, body: str) -> Generator[str]:
    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/api/v1/health"
            assert self.headers["Authorization"] == "Bearer kt_x"
            self.send_response(status)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - its name

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def _health(*levels: str) -> str:
    checks = [
        {"subject": f"Part {n}", "level": level, "message": "is | so\n\x1b[2J"}
        for n, level in enumerate(levels)
    ]
    return json.dumps({"healthy": "error" not in levels, "checks": checks})


SO = "is / so\\n\\x1b[2J"


@pytest.mark.parametrize(
    ("code", "body", "status", "summary", "details"),
    [
        (200, _health("ok", "ok"), "OK", "2 checks, all are healthy", ""),
        (200, _health("ok", "warning"), "WARNING", f"Part 1: {SO}", ""),
        (
            200,
            _health("warning", "error"),
            "CRITICAL",
            "1 error, 1 warning of 2 checks",
            f"Part 1: {SO} Part 0: {SO}",
        ),
        (200, _health(), "UNKNOWN", "the service returned no health checks", ""),
        (200, _health("ok", "splendid"), "UNKNOWN", "the service returned no health", ""),
        (200, "<html>", "CRITICAL", "returns no answer of Keyturn", ""),
        (200, '{"checks": [{"level": "ok"}]}', "CRITICAL", "no answer of Keyturn", ""),
        (302, "{}", "CRITICAL", "returns no answer of Keyturn", ""),
        (503, '{"detail": "database locked"}', "CRITICAL", "database locked", ""),
        (401, '{"detail": "unknown token"}', "UNKNOWN", "unknown token", ""),
    ],
)
def test_answer_becomes_its_status(code: int, body: str, status: str, summary: str, details: str):
    with _serve(code, body) as url:
        output = check("--url", url, token="kt_x")
    assert (output.status, " ".join(output.details)) == (status, details)
    assert summary in output.summary


def test_commands_of_the_page_on_integrations_run_the_check(service: Service, tmp_path: Path):
    page = (Path(__file__).parents[4] / "docs" / "integrations.md").read_text()
    file = tmp_path / "token"
    file.write_text(create_token(service, "olga"))
    nagios = re.search(r"(?m)^ +command_line +/usr/bin/keyturn nagios (.*)$", page)
    assert nagios is not None
    words = nagios[1].replace("$ARG1$", service.address).replace("$ARG2$", str(file)).split()
    icinga = re.findall(r'(?m)^    "(--[a-z-]+)" = "\$(\w+)\$"$', page)
    values = {"keyturn_url": service.address, "keyturn_token_file": str(file)}
    for options in (words, [word for name, value in icinga for word in (name, values[value])]):
        assert check(*options).status == "WARNING"
    shown = re.search(r"(?m)^KEYTURN WARNING: (.*?) \| ", page)
    assert shown is not None
    output = check(*words)
    assert shown[1] in [output.summary, *output.details]
