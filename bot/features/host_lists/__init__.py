"""Lists of hosts: many hosts added, changed or removed by one confirmation of a second person.

`changes.py` compares a list with the inventory, `state.py` reads from the change log who confirmed
which, `actions.py` is what people do, and `writing.py` edits inventory.yaml. `sources.py` reads
NetBox, Ansible or a command, and `sync.py` proposes what differs there.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.cli.command_table import CommandEntry
from bot.feature import Feature, ServerContext, ServerPart

if TYPE_CHECKING:
    from fastapi import APIRouter

    from bot.health import CheckWithPolicy
    from bot.slack.features import ChatFeatures
    from bot.web.pages import Pages


def _load_pages() -> "Sequence[Pages]":
    from bot.features.host_lists.pages import PAGES

    return [PAGES]


def _load_routes() -> "Sequence[APIRouter]":
    from bot.features.host_lists.routes import router

    return [router]


def _load_chat() -> "ChatFeatures":
    from bot.features.host_lists.chat import CHAT

    return CHAT


def _load_checks() -> "Sequence[CheckWithPolicy]":
    from bot.features.host_lists.sync import check_host_lists

    return [check_host_lists]


def _build_server_part(context: ServerContext) -> ServerPart:
    from bot.features.host_lists.sync import build_server_part

    return build_server_part(context)


FEATURE = Feature(
    "host_lists",
    commands=[
        CommandEntry(
            "host-list",
            "bot.features.host_lists.commands:host_list_commands",
            "Add, change or remove many hosts by one list that a second person confirms.",
            section="Hosts",
        )
    ],
    load_pages=_load_pages,
    load_routes=_load_routes,
    load_chat=_load_chat,
    load_checks=_load_checks,
    build_server_part=_build_server_part,
)
