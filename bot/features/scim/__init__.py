"""People of an identity provider: SCIM adds and removes them, and groups give them roles.

`rows.py` keeps what the provider says, `facts.py` adds it to the policy, so that forms, cards and
the gate need not know where a person comes from, `actions.py` is what a provider may do, and
`departure.py` what ends with a person. `server.py` answers SCIM 2.0 at /scim/v2, by `resources.py`
and `storage.py`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.cli.command_table import CommandEntry
from bot.feature import Feature, ServerContext, ServerPart

if TYPE_CHECKING:
    from bot.web.pages import Pages
    from bot.workflow.hooks import WorkflowHooks


def _load_hooks() -> "WorkflowHooks":
    from bot.features.scim.facts import FACTS
    from bot.workflow.hooks import WorkflowHooks

    return WorkflowHooks(policy_facts=[FACTS])


def _load_pages() -> "Sequence[Pages]":
    from bot.features.scim.pages import PAGES

    return [PAGES]


def _build_server_part(context: ServerContext) -> ServerPart:
    from bot.features.scim.server import build_server_part

    return build_server_part(context)


FEATURE = Feature(
    "scim",
    load_hooks=_load_hooks,
    load_pages=_load_pages,
    commands=[
        CommandEntry(
            "people",
            "bot.features.scim.commands:people_commands",
            "List the people of the policy and where they are from; propose members of Slack.",
            section="Access",
        )
    ],
    build_server_part=_build_server_part,
)
