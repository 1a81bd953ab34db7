"""What alerts add to chat: a shortcut in the menu of a message, and answers by themselves."""

from bot.features.alerts.answers import AlertAnswers
from bot.slack.features import ChatContext, ChatFeatures, ChatPart

SHORTCUT = "check-alert"


def _build_part(context: ChatContext) -> ChatPart:
    answers = AlertAnswers(context)
    return ChatPart(
        shortcuts={SHORTCUT: answers.answer_shortcut},
        on_app_message=answers.answer_message,
        run=answers.run_until_cancelled,
    )


CHAT = ChatFeatures(build_parts=[_build_part])
