"""Answer what people type in plain words: suggest forms, request nothing."""

from bot.db.database import Database
from bot.policy import Policy
from bot.queries.suggestions import RequestableRunbooks, suggest_requests
from bot.slack import suggestions
from bot.slack.blocks import Message
from bot.slack.parsing import TypedText


class PlainTextAnswers:
    """Suggests what a text can mean for the person who typed it."""

    def __init__(self, database: Database, requestable: RequestableRunbooks) -> None:
        self._database, self._requestable = database, requestable

    def suggest(
        self, typed_text: TypedText, *, person: str, policy: Policy, notice: str = ""
    ) -> Message | None:
        """Return what a text can mean; None if nothing fits. notice: why it was not requested."""
        typed = typed_text.find_reason_slip()
        with self._database.reading(policy.get_view_rights(person)) as tx:
            now = tx.now
        found = suggest_requests(
            policy,
            typed.command_words,
            person=person,
            get_hosts=lambda: self._requestable.get_hosts(policy, person, now=now),
        )
        if found.offered:
            return suggestions.render_suggestions(
                found.offered, notice=notice, reason=typed.reason
            )
        if found.withheld:
            return suggestions.render_withheld(found.withheld, policy, notice=notice)
        hosts = found.request.hosts
        return suggestions.render_host(hosts[0], policy) if hosts else None
