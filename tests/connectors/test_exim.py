from pathlib import Path

import pytest

from connectors import exim
from connectors.command import Answer, find_failure
from connectors.errors import ParseError
from connectors.exim import parse_queue
from connectors.mail_message import MailMessage

ANSWERS = Path(__file__).parent / "answers" / "mail_queue"
THREE = (ANSWERS / "three.txt").read_text()
# 1xUjtg, in base 62.
ARRIVED = 1_795_262_928


def test_exim_queue_is_parsed_with_the_scripts_that_sent_mail():
    queue = parse_queue(THREE)
    assert queue.messages == (
        MailMessage(
            age_seconds=0,
            size_bytes=327,
            id="1xUjtg-00023k-1P",
            sender="shop@example.com",
            is_frozen=True,
            recipients=["a1@example.net", "b@example.org"],
            arrived_at=ARRIVED,
        ),
        # The other recipient has it already.
        MailMessage(
            0,
            327,
            "1xUjtg-00023n-1W",
            "shop@example.com",
            is_frozen=False,
            recipients=["a2@example.net"],
            arrived_at=ARRIVED,
        ),
        MailMessage(
            0,
            248,
            "1xUjtg-00023q-1e",
            "",
            is_frozen=False,
            recipients=["root@example.net"],
            arrived_at=ARRIVED,
        ),
    )
    assert queue.scripts == ("1001:mailer.php", "1001:mailer.php")


def test_empty_exim_queue_has_no_messages():
    assert parse_queue((ANSWERS / "empty.txt").read_text()).messages == ()


def test_exim_message_ages_and_sizes_are_parsed_with_units():
    (first, *_) = parse_queue(THREE.replace(" 0m   327", "25h  2.9K", 1)).messages
    assert (first.age_seconds, first.size_bytes) == (90_000, 2969)


@pytest.mark.parametrize(
    "answer",
    ["", "nonsense\n", THREE.replace("--- scripts", ""), "nonsense\n--- scripts\n", THREE + "x\n"],
)
def test_invalid_exim_queue_is_a_parse_error(answer: str):
    with pytest.raises(ParseError):
        parse_queue(answer)


@pytest.mark.parametrize(
    ("output", "means"),
    [
        ("keyturn: 1: exim: not found", "this host has neither Exim nor Postfix"),
        ("exim: permission denied", "only root and Exim's administrators"),
    ],
)
def test_exim_queue_errors_say_what_to_do(output: str, means: str):
    assert means in str(
        find_failure(exim.query_queue().command, Answer(1, "", output), frozenset({0}))
    )
