import subprocess
from pathlib import Path

import pytest

from connectors import postfix
from connectors.command import Answer, find_failure
from connectors.errors import ParseError
from connectors.mail_message import MailMessage, MailQueue
from connectors.postfix import parse_is_installed, parse_queue
from tests.connectors.understanding import is_understood

# Of Postfix 3.7.
ANSWERS = Path(__file__).parent / "answers" / "postfix"
EMPTY = (ANSWERS / "empty.txt").read_text()
THREE = (ANSWERS / "three.txt").read_text()
ARRIVED = 1_795_270_352


def test_postfix_queue_is_parsed_with_the_script_that_sent_mail():
    queue = parse_queue(THREE)
    assert queue.messages == (
        MailMessage(
            *(5, 264, "99AFC99FD66", ""),
            is_frozen=False,
            recipients=["c@example.net"],
            arrived_at=ARRIVED,
        ),
        MailMessage(
            *(5, 317, "7A69F99FD60", "shop@example.com"),
            is_frozen=False,
            recipients=["a@example.net", "b@example.net"],
            arrived_at=ARRIVED,
        ),
        MailMessage(
            *(5, 273, "A91C199FD67", "eve@example.com"),
            is_frozen=True,
            recipients=["d@example.net"],
            arrived_at=ARRIVED,
        ),
    )
    assert queue.scripts == ("1001:mailer.php",)
    assert queue.unlisted_count == 0


def test_empty_postfix_queue_has_no_messages():
    assert parse_queue(EMPTY) == MailQueue((), ())


def test_postfix_messages_beyond_the_listed_ones_are_counted():
    assert parse_queue(THREE.replace("--- messages 3", "--- messages 7003")).unlisted_count == 7000


def test_postfix_message_age_is_not_negative_after_the_clock_is_set_back():
    now, _, rest = THREE.partition("\n")
    assert parse_queue(f"{int(now) - 3600}\n{rest}").messages[0].age_seconds == 0


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "nonsense\n",
        EMPTY.replace("--- messages 0\n", ""),
        THREE.replace("--- messages", ""),
        THREE.replace('"queue_id"', '"id"', 1),
        THREE.replace('"message_size": 264', '"message_size": "big"'),
        THREE.replace("}]}\n", "}]\n", 1),
        THREE.replace("X-PHP-Originating-Script:", "Subject:"),
    ],
)
def test_invalid_postfix_queue_is_not_understood(answer: str):
    assert not is_understood(lambda: parse_queue(answer))


def test_a_message_that_still_waits_after_a_retry_is_printed_with_the_reason(tmp_path: Path):
    """The programs print what Postfix 3.7 prints; the pause is left out."""
    waiting = (
        '{"queue_name": "deferred", "queue_id": "7A69F99FD60", "arrival_time": 1795270352, '
        '"sender": "active@example.com", "recipients": [{"address": "a@example.net", '
        '"delay_reason": "connect to 192.0.2.1[192.0.2.1]:25: Connection refused"}]}'
    )
    other = '{"queue_name": "active", "queue_id": "17A69F99FD60", "recipients": []}'
    for name, output in {"postqueue": f"{other}\n{waiting}", "postsuper": "", "sleep": ""}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\ncat <<'EOF'\n{output}\nEOF\n")
        (tmp_path / name).chmod(0o755)

    def retry() -> str:
        words = postfix.retry_message("7A69F99FD60").words
        path = f"{tmp_path}:/usr/bin:/bin"
        return subprocess.run(
            words, env={"PATH": path}, capture_output=True, text=True, check=True
        ).stdout

    assert retry().splitlines()[-1] == waiting
    (tmp_path / "postqueue").write_text("#!/bin/sh\n")
    assert not retry().strip()


def test_postfix_is_installed_when_postqueue_is_found():
    assert parse_is_installed("/usr/sbin/postqueue\n")
    assert not parse_is_installed("")
    with pytest.raises(ParseError):
        parse_is_installed("alias postqueue='id'\n")


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("postqueue: invalid option -- 'j'\nusage: postqueue -f", "older than 3.1"),
        (
            "postqueue: fatal: User nobody(65534) is not allowed to view the mail queue",
            "sudo rule",
        ),
    ],
)
def test_postfix_queue_errors_say_what_to_do(output: str, words: str):
    assert words in str(
        find_failure(postfix.query_queue().command, Answer(69, "", output), frozenset({0}))
    )
