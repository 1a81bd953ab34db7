import pytest
from pydantic import ValidationError

from connectors import exim, postfix
from connectors.mail_message import MailMessage, MailQueue
from runbooks import NoUndo
from runbooks._mail import MailServer
from runbooks.mail_queue_retry import RetryMail

EXIM, POSTFIX = "1xUjtg-00023k-1P", "99AFC99FD66"


def server(name: str, *, is_postfix: bool = False, is_frozen: bool = False) -> MailServer:
    message = MailMessage(
        60, 1000, name, "a@example.com", is_frozen=is_frozen, recipients=["b@example.net"]
    )
    return MailServer(MailQueue((message,), ()), is_postfix)


def retry(name: str) -> RetryMail:
    return RetryMail.model_validate({"host": "mail1", "message": name})


def test_mail_queue_retry_uses_the_command_of_the_mail_server():
    plan = retry(EXIM).plan(server(EXIM, is_frozen=True))
    assert plan.current_state == f"message {EXIM} from a@example.com is frozen on mail1"
    assert plan.steps[0].do == exim.retry_message(EXIM)
    assert isinstance(plan.steps[0].undo, NoUndo)
    (step,) = retry(POSTFIX).plan(server(POSTFIX, is_postfix=True)).steps
    assert step.do == postfix.retry_message(POSTFIX)


def test_mail_queue_retry_of_a_message_that_is_gone_plans_no_steps():
    assert not retry(EXIM).plan(server(POSTFIX)).steps


@pytest.mark.parametrize("name", ["ALL", "-qff", "a b", "1xUjtg-00023k", "x" * 30, "../etc"])
def test_invalid_message_id_is_refused(name: str):
    with pytest.raises(ValidationError):
        retry(name)
