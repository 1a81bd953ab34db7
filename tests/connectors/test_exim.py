from pathlib import Path

import pytest

from connectors import exim
from connectors.command import Answer, find_failure
from connectors.errors import ParseError
from connectors.exim import parse_queue
from connectors.mail_message import MailMessage
from connectors.rows import list_odd_rows

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


def test_damaged_exim_message_leaves_the_others_readable():
    queue = parse_queue((ANSWERS / "damaged.txt").read_text())
    assert [(each.id, each.is_frozen, each.recipients) for each in queue.messages] == [
        ("1tAbCd-000000001Ab-1XyZ", False, ["bob@example.com"]),
        ("1tAbCg-000000001Ab-1Xy1", True, ["eve@example.com"]),
        ("1tAbCh-000000001Ab-1Xy2", False, []),
        ("1tAbCi-000000001Ab-1Xy3", False, ["fay@example.com"]),
    ]
    assert [message.sender for message in queue.messages] == [
        *("ann@example.com", "ann@example.com", "", 'a>"b@example.com')
    ]
    assert [message.size_bytes for message in queue.messages] == [1228, 0, 0, 2_500_000_000]
    assert [(odd.text, odd.reason) for odd in list_odd_rows(queue)] == [
        (
            "1tAbCe-0001xY-2z / *** spool format error: size=0 ***",
            "Exim cannot read it (spool format error: size=0)",
        ),
        (
            "1tAbCf-000000001Ab-1Xy0 / *** spool read error: Permission denied ***",
            "Exim cannot read it (spool read error: Permission denied)",
        ),
        (
            "1tAbCg-000000001Ab-1Xy1 / *** spool format error: size=812 *** *** frozen ***",
            "Exim cannot read all of it",
        ),
    ]


def test_unknown_line_in_an_exim_queue_is_an_odd_row():
    queue = parse_queue(THREE.replace("--- scripts\n", "LOG: warning\n--- scripts\n") + "x\n")
    assert len(queue.messages) == 2
    assert len(queue.scripts) == 2
    assert len([*list_odd_rows(queue)]) == 2


@pytest.mark.parametrize(
    "answer",
    ["", "nonsense\n", THREE.replace("--- scripts", ""), "nonsense\n--- scripts\n"],
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
