"""Notices by e-mail: what concerns a person who is not in chat, and the weekly digest."""

from bot.feature import Feature, ServerContext, ServerPart


def _build_server_part(context: ServerContext) -> ServerPart:
    if not context.settings.mail_server:
        return ServerPart()
    from bot.features.notices.sender import build_notice_sender

    return ServerPart(duties=[build_notice_sender(context).send_due_notices])


FEATURE = Feature("notices", build_server_part=_build_server_part)
