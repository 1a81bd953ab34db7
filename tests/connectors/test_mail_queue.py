from pathlib import Path

import pytest

from connectors import mail_queue
from connectors.command import Answer, failure
from connectors.mail_message import Message
from connectors.mail_queue import parse_queue
from connectors.trouble import NotUnderstood

ANSWERS = Path(__file__).parent / "answers" / "mail_queue"
THREE = (ANSWERS / "three.txt").read_text()


def test_messages_and_the_scripts_that_sent_them_are_understood():
    queue = parse_queue(THREE)
    assert queue.messages == (
        Message(
            age=0,
            size=327,
            name="1xUjtg-00023k-1P",
            sender="shop@example.com",
            frozen=True,
            left=["a1@example.net", "b@example.org"],
        ),
        # The other recipient has it already.
        Message(
            0, 327, "1xUjtg-00023n-1W", "shop@example.com", frozen=False, left=["a2@example.net"]
        ),
        Message(0, 248, "1xUjtg-00023q-1e", "", frozen=False, left=["root@example.net"]),
    )
    assert queue.scripts == ("1001:mailer.php", "1001:mailer.php")


def test_an_empty_queue_is_empty():
    assert parse_queue((ANSWERS / "empty.txt").read_text()).messages == ()


def test_ages_and_sizes_have_units():
    (first, *_) = parse_queue(THREE.replace(" 0m   327", "25h  2.9K", 1)).messages
    assert (first.age, first.size) == (90_000, 2969)


@pytest.mark.parametrize(
    "answer",
    ["", "nonsense\n", THREE.replace("--- scripts", ""), "nonsense\n--- scripts\n", THREE + "x\n"],
)
def test_anything_else_is_not_taken_for_a_queue(answer: str):
    with pytest.raises(NotUnderstood):
        parse_queue(answer)


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("keyturn: 1: exim: not found", "this host has neither Exim nor Postfix"),
        ("exim: permission denied", "only root and Exim's administrators"),
    ],
)
def test_known_errors_say_what_to_do(said: str, means: str):
    assert means in str(failure(mail_queue.queue().command, Answer(1, "", said), frozenset({0})))
