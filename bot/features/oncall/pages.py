"""What the policy page shows of the calendars."""

from collections.abc import Mapping

from bot.db.database import Transaction
from bot.features.oncall.status import list_calendars
from bot.policy import Policy
from bot.web.pages import Pages, PageSection


def _read_calendars(tx: Transaction, policy: Policy) -> Mapping[str, object]:
    calendars = list_calendars(tx, policy)
    return {"calendars": calendars} if calendars else {}


PAGES = Pages(sections=[PageSection("policy", "oncall/calendars.html", _read_calendars)])
