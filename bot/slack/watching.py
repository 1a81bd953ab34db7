"""Watching a run: a direct message when it ends. Who watches is stored as a message of the run."""

from collections.abc import Sequence

from bot.db import outbox, runs, view_conditions
from bot.db.database import Transaction
from bot.db.outbox import PostedMessage
from bot.model.errors import TooLate
from bot.model.view_rights import ViewRights
from bot.slack.run_facts import SlackRunViewBuilder
from bot.slack.run_message import render_ended
from bot.slack.run_posts import RunPosts

# The starts of the slots: a person watches, and has the message.
_WATCH, _SENT = "watch ", "watched "


def add_watcher(tx: Transaction, number: int, *, user: str, rights: ViewRights) -> None:
    """Have a user with these rights notified when a run ends. Raises NoSuchRun, TooLate."""
    with view_conditions.viewing_as(tx, rights):
        run = runs.get_run(tx, number)
    if run.is_ended:
        raise TooLate(f"Run {number} has ended: {run.summary or run.title}")
    outbox.store_message(tx, PostedMessage(number, f"{_WATCH}{user}", "", "", ""))
    # It may end before this is committed.
    outbox.announce_run(tx, number)


def list_watchers(
    tx: Transaction, posts: RunPosts, view_builder: SlackRunViewBuilder
) -> Sequence[str]:
    """Return the users who watched a run that has ended, may view it, and have no message yet."""
    if not posts.run_view.run.is_ended:
        return []
    users = [slot.removeprefix(_WATCH) for slot in posts.posted if slot.startswith(_WATCH)]
    if not users:
        return []
    people = view_builder.get_person_ids_by_account()
    number = posts.run_view.run.id
    due: list[str] = []
    for user in users:
        if user in people and f"{_SENT}{user}" not in posts.posted:
            with view_conditions.viewing_as(tx, view_builder.get_view_rights(people[user])):
                due += [user] if view_conditions.list_viewable(tx, [number]) else []
    return due


async def notify_watcher(posts: RunPosts, user: str) -> None:
    """Send a person how the run ended, once."""
    await posts.try_send_once(f"{_SENT}{user}", render_ended(posts.run_view), user)
