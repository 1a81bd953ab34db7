"""The service log as lines of text or JSON, without secrets."""

import json
import logging
import sys

from bot import observability
from bot.model.redaction import Redactor
from bot.observability import JsonFormatter, NoFlood, RedactingFormatter

SECRET = 'a"secret\\of-2026'


def _build_record(message: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord("bot.web", logging.WARNING, "x.py", 1, message, args, None)


def test_json_log_line_contains_run_host_and_person() -> None:
    with observability.trace_span("step", run=12, host="lb1"):
        observability.add_context(person="dora")
        line = JsonFormatter(Redactor([])).format(_build_record("%d steps were left", 3))
    data = json.loads(line)
    assert data.pop("time").endswith("Z")
    assert data == {
        "level": "warning",
        "logger": "bot.web",
        "message": "3 steps were left",
        "run": 12,
        "host": "lb1",
        "person": "dora",
    }


def test_json_log_line_without_context_has_no_run_host_or_person() -> None:
    data = json.loads(JsonFormatter(Redactor([])).format(_build_record("ready")))
    assert data.keys() == {"time", "level", "logger", "message"}


def test_json_log_line_escapes_hostile_characters() -> None:
    hostile = 'x\n{"level": "critical"}\x1b[2J\u2028\u202e'
    line = JsonFormatter(Redactor([])).format(_build_record(hostile))
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["message"] == hostile


def test_secrets_are_redacted_in_text_and_json_log_lines() -> None:
    redactor = Redactor([SECRET])
    record = _build_record("the token is %s", SECRET)
    try:
        raise ValueError(f"it was {SECRET}")
    except ValueError:
        record.exc_info = sys.exc_info()
    with observability.trace_span("step", person=SECRET):
        lines = [form(redactor).format(record) for form in (JsonFormatter, RedactingFormatter)]
    assert "ValueError" in json.loads(lines[0])["error"]
    for line in lines:
        assert "of-2026" not in line


def test_without_the_redactor_a_secret_is_in_the_log_line() -> None:
    assert "of-2026" in JsonFormatter(Redactor([])).format(
        _build_record("the token is %s", SECRET)
    )


def test_line_break_in_a_message_does_not_forge_a_text_log_line() -> None:
    hostile = "late\n2026-01-01 00:00:00 INFO bot.web: all is well\x1b[2J"
    line = RedactingFormatter(Redactor([])).format(_build_record("%s", hostile))
    assert line.isprintable()


def test_secret_split_over_two_lines_is_redacted_in_the_text_log() -> None:
    broken = f"{SECRET[:6]}\n{SECRET[6:]}"
    assert "of-2026" not in RedactingFormatter(Redactor([SECRET])).format(
        _build_record("%s", broken)
    )


def _list_logged(logger: str, *messages: str) -> list[str]:
    guard = NoFlood()
    records = [
        logging.LogRecord(logger, logging.WARNING, "x.py", 1, message, (), None)
        for message in messages
    ]
    return [record.getMessage() for record in records if guard.filter(record)]


def test_log_messages_caused_by_clients_are_limited_to_ten_a_minute() -> None:
    passed = _list_logged("uvicorn.error", *["Invalid HTTP request received."] * 50, "another")
    assert passed[:9] == ["Invalid HTTP request received."] * 9
    assert passed[9:] == [
        "Invalid HTTP request received. (further messages like this are suppressed for a minute)",
        "another",
    ]
    accepts = [f"socket.accept() out of system resource\nsocket: {n}" for n in range(50)]
    assert len(_list_logged("asyncio", *accepts)) == 10


def test_log_messages_of_the_service_itself_are_never_suppressed() -> None:
    assert len(_list_logged("bot.workflow", *["a run failed"] * 50)) == 50


def test_suppressed_log_messages_are_logged_again_after_a_minute() -> None:
    guard = NoFlood()
    record = (
        "uvicorn.error",
        logging.WARNING,
        "x.py",
        1,
        "Invalid HTTP request received.",
        (),
        None,
    )
    first = logging.LogRecord(*record)
    for _ in range(20):
        guard.filter(first)
    later = logging.LogRecord(*record)
    later.created = first.created + 61
    assert guard.filter(later)
