from datetime import UTC, datetime, timedelta

import pytest

from connectors import postfix
from connectors.command import Shell
from connectors.mail_message import MailMessage, MailQueue
from runbooks import Clock, NoUndo, Plan, Refused
from runbooks._mail import MailServer
from runbooks.mail_queue_remove import MailState, RemoveMail

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def message(name: str, sender: str, *, before: int = 60) -> MailMessage:
    arrived = int((NOON - timedelta(seconds=before)).timestamp())
    return MailMessage(
        60, 1000, name, sender, is_frozen=False, recipients=["a@example.net"], arrived_at=arrived
    )


def state(*messages: MailMessage, lag: int = 0, is_postfix: bool = True) -> MailState:
    clock = Clock(NOON + timedelta(minutes=5, seconds=lag), NOON + timedelta(minutes=5))
    return MailState(MailServer(MailQueue(messages, ()), is_postfix), clock)


def remove(**values: str) -> RemoveMail:
    return RemoveMail.model_validate({"host": "mail1", "before": NOON.isoformat(), **values})


def ids_of(plan: Plan) -> str:
    (step,) = plan.steps
    assert isinstance(step.do, Shell)
    return str(step.do.stdin)


MESSAGES = (
    message("AAAAAA1", "spam@example.com"),
    message("AAAAAA2", "shop@example.com"),
    message("AAAAAA3", ""),
    message("AAAAAA4", "spam@example.com", before=-60),
)


def test_mail_queue_remove_names_messages_of_a_sender_before_the_request():
    plan = remove(sender="spam@example.com").plan(state(*MESSAGES))
    assert ids_of(plan) == "AAAAAA1\n"
    assert isinstance(plan.steps[0].undo, NoUndo)
    assert "1 message from spam@example.com" in plan.current_state


def test_mail_queue_remove_takes_bounces_for_messages_without_a_sender():
    assert ids_of(remove(sender="bounces").plan(state(*MESSAGES))) == "AAAAAA3\n"


def test_mail_queue_remove_removes_one_message_of_any_age():
    assert ids_of(remove(message="AAAAAA4").plan(state(*MESSAGES))) == "AAAAAA4\n"


@pytest.mark.parametrize("lag", [-3600, 3600])
def test_mail_queue_remove_keeps_newer_messages_when_the_host_clock_is_wrong(lag: int):
    shifted = [
        message(one.id, one.sender, before=int(NOON.timestamp()) - one.arrived_at - lag)
        for one in MESSAGES
    ]
    plan = remove(sender="spam@example.com").plan(state(*shifted, lag=lag))
    assert ids_of(plan) == "AAAAAA1\n"


def test_mail_queue_remove_without_matching_messages_plans_no_steps():
    assert not remove(sender="other@example.com").plan(state(*MESSAGES)).steps


@pytest.mark.parametrize("values", [{}, {"message": "AAAAAA1", "sender": "bounces"}])
def test_mail_queue_remove_requires_either_a_message_or_a_sender(values: dict[str, str]):
    with pytest.raises(Refused, match="either one message= or one sender="):
        remove(**values).plan(state(*MESSAGES))


def test_mail_queue_remove_refuses_over_2000_messages():
    many = [message(f"AAAA{n:06}", "spam@example.com") for n in range(2001)]
    with pytest.raises(Refused, match=r"2,001 messages from spam@example\.com wait"):
        remove(sender="spam@example.com").plan(state(*many))


def test_mail_queue_remove_uses_the_command_of_the_mail_server():
    plan = remove(message="AAAAAA1").plan(state(*MESSAGES))
    assert plan.steps[0].do == postfix.remove_messages(["AAAAAA1"])
