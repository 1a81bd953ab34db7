"""Check the connection between an installation and Slack, in both directions."""

import asyncio
from collections.abc import Iterator

from bot.maintenance.installation import Installation
from bot.model.check_result import CheckResult, create_warning_result
from bot.policy import Policy
from bot.slack import self_check
from bot.slack.app import create_client
from bot.slack.payloads import Account
from bot.slack.self_check import AccountsByPerson


def check_slack(installation: Installation, policy: Policy | None) -> Iterator[CheckResult]:
    """Check tokens, scopes, workspace, clock, channels and accounts.

    Args:
        installation: The installation to check.
        policy: Its policy; None if that is not valid.
    """
    if not installation.slack_bot_token:
        yield create_warning_result(
            "Slack", "is not connected. To connect it, set KEYTURN_SLACK_BOT_TOKEN: see the README"
        )
        return
    yield from asyncio.run(_run_self_check(installation, policy))
    if not installation.slack_channel:
        yield create_warning_result(
            "default channel",
            "is not set: a request from outside Slack is posted in the channel of its area, or "
            "only sent to its approvers. Set KEYTURN_SLACK_CHANNEL",
        )


async def _run_self_check(installation: Installation, policy: Policy | None) -> list[CheckResult]:
    settings = self_check.SlackConnectionSettings(
        workspace=installation.slack_team,
        app_token=installation.slack_app_token,
        signing_secret=installation.slack_signing_secret,
        base_url=installation.base_url,
        channels=_list_channels(installation, policy),
        people=_list_accounts(policy) if policy else None,
        authorities=installation.authorities,
    )
    client = create_client(installation.slack_bot_token, installation.slack_api)
    return [result async for result in self_check.check_slack_connection(client, settings)]


def _list_channels(installation: Installation, policy: Policy | None) -> dict[str, str]:
    """Return the purpose of every channel that Keyturn may write in, by its id."""
    found: dict[str, list[str]] = {}
    if installation.slack_channel:
        found[installation.slack_channel] = ["requests from outside Slack"]
    if installation.slack_alarm_channel:
        found.setdefault(installation.slack_alarm_channel, []).append("break-glass alerts")
    for name, area in policy.organisation.areas.items() if policy else ():
        if area.channel:
            found.setdefault(area.channel, []).append(f"the area {name}")
    return {channel: " and ".join(purposes) for channel, purposes in found.items()}


def _list_accounts(policy: Policy) -> AccountsByPerson:
    """Return the Slack accounts of each person."""
    return {
        person.id: [Account(one.team, one.user, one.enterprise or "") for one in person.slack]
        for person in policy.organisation.people.values()
    }
