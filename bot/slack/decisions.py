"""Decisions by button: what was clicked is looked up here, and nothing in it is believed."""

import re

from bot.run import Run
from bot.slack.aliases import COMMAND
from bot.slack.card import ACCEPT, APPROVE, WITHDRAW
from bot.slack.payloads import Click
from bot.store import news, runs
from bot.store.database import Database
from bot.workflow import TooLate, Workflow

CARD, COPY = "card", "copy "
_VALUE = re.compile(r"(\d{1,9}):([0-9a-f]{10})", re.ASCII)


class Outdated(TooLate):
    """The button is on a message that nothing keeps up to date: another one is the run's card."""


class Decisions:
    def __init__(self, workflow: Workflow, database: Database) -> None:
        self._workflow, self._database = workflow, database

    def decide(self, click: Click, *, person: str) -> Run:
        """Approve or deny what the clicked card shows. Raises NotYours, TooLate, NoSuchRun.

        Outdated, which is a TooLate, where the buttons are to be taken off the message.
        """
        value = _VALUE.fullmatch(click.value)
        if value is None:
            raise TooLate("This button is not one of Keyturn's: look at the run itself.")
        number, digest = int(value[1]), value[2]
        self._check_card(click, number, digest)
        if click.action == ACCEPT:
            return self._workflow.accept(number, person=person, digest=digest)
        if click.action == WITHDRAW:
            return self._workflow.withdraw(number, person=person)
        if click.action == APPROVE:
            return self._workflow.approve(number, person=person, digest=digest)
        return self._workflow.deny(number, person=person)

    def _check_card(self, click: Click, number: int, digest: str) -> None:
        """Refuse buttons of another message or another plan than the one that is shown.

        A post whose answer was lost may leave a message that we do not know to be there.
        """
        with self._database.reading() as tx:
            run = runs.get(tx, number)
            notices = news.notices(tx, number)
            in_flux = news.has_more(tx, number)
        stands = {
            (notice.channel, notice.ts)
            for slot, notice in notices.items()
            if slot == CARD or slot.startswith(COPY)
        }
        # What stands on somebody's Home is drawn for them alone, and nobody else can click it.
        if not click.home and (click.channel, click.ts) not in stands:
            if in_flux:
                # It may be the card that is being posted just now.
                raise TooLate(f"Run {number} is just being told of: look at it again in a moment.")
            raise Outdated(
                f"This is not the card of run {number} any more: look for its newest, or type "
                f"{COMMAND} run {number}."
            )
        if run.short_digest != digest:
            raise TooLate(f"Run {number} has another plan than this button: look at it again.")
