"""Messages to owners about lists of hosts that they can confirm."""

from collections.abc import Callable, Sequence
from functools import partial

from bot.db.database import Transaction
from bot.features.host_lists.state import HostList, find_refusal, read_lists
from bot.model.text import join_names
from bot.policy import Policy
from bot.slack.blocks import Message, code, format_notification, link, rich_text, rich_text_section
from bot.slack.features import ChatFeatures, DirectNotice


def list_notices(tx: Transaction, policy: Policy) -> Sequence[DirectNotice]:
    """Return a notice for each open list and each owner who can confirm it."""
    return [
        DirectNotice(
            person, f"host list {one.number}", partial(_read_message, _describe(policy, one), one)
        )
        for one in read_lists(tx)
        if one.state == "open"
        for person in policy.organisation.people
        if person not in one.people and not find_refusal(policy, one, person)
    ]


def _describe(policy: Policy, one: HostList) -> str:
    by = (
        f"Source {one.source} proposes"
        if one.source
        else f"{policy.get_person_name(one.proposed_by)} proposes"
    )
    areas = join_names([policy.join_area_titles([name]) for name in one.areas])
    return f"{by} a list of hosts of {areas}: {one.summary}."


def _read_message(text: str, one: HostList, _tx: Transaction) -> Callable[[str], Message]:
    return partial(_build_message, text, one)


def _build_message(text: str, one: HostList, base_url: str) -> Message:
    where = (
        link(f"{base_url}/host-lists/{one.number}", "Read and confirm it")
        if base_url
        else code(f"keyturn host-list show {one.number}")
    )
    return Message(format_notification(text), [rich_text(rich_text_section(text, " ", where))])


CHAT = ChatFeatures(list_direct_notices=[list_notices])
