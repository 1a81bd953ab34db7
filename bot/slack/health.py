"""Check that an installation reaches Slack, and Slack reaches it."""

import asyncio
from collections.abc import Iterator

from bot.maintenance.installation import Installation
from bot.model.check_result import CheckResult, warning
from bot.policy import Policy
from bot.slack import self_check
from bot.slack.app import client
from bot.slack.payloads import Account
from bot.slack.self_check import People


def check_slack(patient: Installation, policy: Policy | None) -> Iterator[CheckResult]:
    """Check tokens, scopes, workspace, clock, channels and accounts.

    Args:
        patient: The installation.
        policy: Its policy; None if that is not valid.
    """
    if not patient.slack_bot_token:
        yield warning(
            "Slack", "is not connected: KEYTURN_SLACK_BOT_TOKEN is not set, see the README"
        )
        return
    yield from asyncio.run(_ask_slack(patient, policy))
    if not patient.slack_channel:
        yield warning(
            "the channel",
            "for what is asked in none, as on the web, is not set: unless its area has one, only "
            "those who can approve are written to. KEYTURN_SLACK_CHANNEL names one",
        )


async def _ask_slack(patient: Installation, policy: Policy | None) -> list[CheckResult]:
    way = self_check.Way(
        team=patient.slack_team,
        app_token=patient.slack_app_token,
        signing_secret=patient.slack_signing_secret,
        base_url=patient.base_url,
        channels=_list_channels(patient, policy),
        people=_list_accounts(policy) if policy else None,
        authorities=patient.authorities,
    )
    speaker = client(patient.slack_bot_token, patient.slack_api)
    return [finding async for finding in self_check.findings(speaker, way)]


def _list_channels(patient: Installation, policy: Policy | None) -> dict[str, str]:
    """Return every channel that Keyturn may write in, and what for."""
    found: dict[str, list[str]] = {}
    if patient.slack_channel:
        found[patient.slack_channel] = ["requests made in none"]
    if patient.slack_alarm_channel:
        found.setdefault(patient.slack_alarm_channel, []).append("alarms")
    for name, area in policy.household.areas.items() if policy else ():
        if area.channel:
            found.setdefault(area.channel, []).append(f"the area {name}")
    return {channel: " and ".join(purposes) for channel, purposes in found.items()}


def _list_accounts(policy: Policy) -> People:
    """Return everyone's accounts in Slack."""
    return {
        person.id: [Account(one.team, one.user, one.enterprise or "") for one in person.slack]
        for person in policy.household.people.values()
    }
