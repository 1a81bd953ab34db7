"""Check that an installation reaches Slack, and Slack reaches it."""

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
        patient: The installation.
        policy: Its policy; None if that is not valid.
    """
    if not installation.slack_bot_token:
        yield create_warning_result(
            "Slack", "is not connected: KEYTURN_SLACK_BOT_TOKEN is not set, see the README"
        )
        return
    yield from asyncio.run(_run_self_check(installation, policy))
    if not installation.slack_channel:
        yield create_warning_result(
            "the channel",
            "for what is asked in none, as on the web, is not set: unless its area has one, only "
            "those who can approve are written to. KEYTURN_SLACK_CHANNEL names one",
        )


async def _run_self_check(installation: Installation, policy: Policy | None) -> list[CheckResult]:
    way = self_check.SlackConnectionSettings(
        workspace=installation.slack_team,
        app_token=installation.slack_app_token,
        signing_secret=installation.slack_signing_secret,
        base_url=installation.base_url,
        channels=_list_channels(installation, policy),
        people=_list_accounts(policy) if policy else None,
        authorities=installation.authorities,
    )
    speaker = create_client(installation.slack_bot_token, installation.slack_api)
    return [finding async for finding in self_check.check_slack_connection(speaker, way)]


def _list_channels(installation: Installation, policy: Policy | None) -> dict[str, str]:
    """Return every channel that Keyturn may write in, and what for."""
    found: dict[str, list[str]] = {}
    if installation.slack_channel:
        found[installation.slack_channel] = ["requests made in none"]
    if installation.slack_alarm_channel:
        found.setdefault(installation.slack_alarm_channel, []).append("alarms")
    for name, area in policy.organisation.areas.items() if policy else ():
        if area.channel:
            found.setdefault(area.channel, []).append(f"the area {name}")
    return {channel: " and ".join(purposes) for channel, purposes in found.items()}


def _list_accounts(policy: Policy) -> AccountsByPerson:
    """Return everyone's accounts in Slack."""
    return {
        person.id: [Account(one.team, one.user, one.enterprise or "") for one in person.slack]
        for person in policy.organisation.people.values()
    }
