"""What people see whom the policy does not know, and their request to be added. Pure."""

from collections.abc import Sequence

from bot.model.text import format_sentence
from bot.policy import Person
from bot.slack.blocks import (
    Message,
    actions,
    button,
    code,
    paragraph,
    user_mention,
)
from bot.slack.buttons import ASK_ACCESS
from bot.slack.identity import UnknownAccountError
from bot.slack.payloads import Account
from bot.slack.replies import build_text_reply

_MAX_NAMED = 5


def render_unknown_account(refusal: UnknownAccountError) -> Message:
    """Say whom to ask, with a button that asks."""
    reply = build_text_reply(format_sentence(str(refusal)))
    if not refusal.contacts:
        return reply
    ask = button("Ask for access", action=ASK_ACCESS, value="access", label="Ask for access")
    return Message(reply.text, [*reply.blocks, actions("access", ask)])


def render_access_request(account: Account) -> Message:
    """Tell an administrator who asks to be added, with the line for people.yaml."""
    line = f"slack: [{{team: {account.team}, user: {account.user}}}]"
    return Message(
        "A person asks for access to Keyturn",
        [
            paragraph(
                user_mention(account.user),
                " asks for access to Keyturn. If you know the person, add an entry to people.yaml "
                "with ",
                code(line),
                ". Nothing is granted until you do.",
            )
        ],
    )


def render_access_requested(asked: Sequence[Person]) -> Message:
    names = ", ".join(person.name for person in asked)
    if not names:
        return build_text_reply("No administrator could be reached: ask one in person.")
    return build_text_reply(
        f"Asked {names}. Keyturn works for you once one of them has added you."
    )
