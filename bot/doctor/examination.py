"""The examination: everything that must be so before people can rely on an installation."""

import asyncio
from collections.abc import Iterator
from contextlib import closing

from bot.doctor import records
from bot.doctor.patient import Patient
from bot.finding import Finding, mend, note, ok
from bot.inventory.standing import standings
from bot.policy import NoPolicy, Policy
from bot.policy.directory import check_access, load
from bot.slack import checkup
from bot.slack.census import People
from bot.slack.door import client
from bot.slack.payloads import Account
from connectors.fleet import Fleet
from connectors.sessions import Sessions

_MOST_HOSTS_TOLD = 20


def examine(patient: Patient) -> Iterator[Finding]:
    """Look at one thing after the other; yield each finding as it is known."""
    policy = _policy(patient)
    yield (
        policy
        if isinstance(policy, Finding)
        else ok(
            "the policy",
            f"is valid: {len(policy.household.people)} people, "
            f"{len(policy.inventory.hosts)} hosts",
        )
    )
    known = None if isinstance(policy, Finding) else policy
    yield from _settings(patient)
    yield from records.findings(patient)
    yield _address(patient)
    yield from _slack(patient, known)
    if known is not None:
        yield from _hosts(patient, known)


def _settings(patient: Patient) -> Iterator[Finding]:
    for name, meant in patient.misspelt.items():
        yield note("the settings", f"{name} is none, so it is ignored: is {meant} meant?")


def _policy(patient: Patient) -> Policy | Finding:
    try:
        check_access(patient.policy)
        return load(patient.policy)
    except NoPolicy as trouble:
        return mend(
            "the policy",
            f"{trouble} (until it is valid, nobody may do anything: keyturn policy check)",
        )


def _address(patient: Patient) -> Finding:
    from bot.web.outfit import lacking  # with it come all the pages

    if bare := lacking():
        return mend("the pages", bare)
    if not patient.base_url:
        return note(
            "the pages",
            "have no address for others: set KEYTURN_BASE_URL to how people reach them",
        )
    if not patient.base_url.startswith("https://"):
        return note("the pages", f"are at {patient.base_url}, without TLS: put it in front")
    return ok("the pages", f"are at {patient.base_url}")


def _slack(patient: Patient, policy: Policy | None) -> Iterator[Finding]:
    if not patient.slack_bot_token:
        yield note("Slack", "is not connected: KEYTURN_SLACK_BOT_TOKEN is not set, see the README")
        return
    yield from asyncio.run(_asked(patient, policy))
    if not patient.slack_channel:
        yield note(
            "the channel",
            "for what is asked in none, as on the web, is not set: unless its area has one, only "
            "those who can approve are written to. KEYTURN_SLACK_CHANNEL names one",
        )


async def _asked(patient: Patient, policy: Policy | None) -> list[Finding]:
    way = checkup.Way(
        team=patient.slack_team,
        app_token=patient.slack_app_token,
        signing_secret=patient.slack_signing_secret,
        base_url=patient.base_url,
        channels=_channels(patient, policy),
        people=_people(policy) if policy else None,
        authorities=patient.authorities,
    )
    speaker = client(patient.slack_bot_token, patient.slack_api)
    return [finding async for finding in checkup.findings(speaker, way)]


def _channels(patient: Patient, policy: Policy | None) -> dict[str, str]:
    """Return every channel that we may have to write in, and what for."""
    found: dict[str, list[str]] = {}
    if patient.slack_channel:
        found[patient.slack_channel] = ["requests made in none"]
    if patient.slack_alarm_channel:
        found.setdefault(patient.slack_alarm_channel, []).append("alarms")
    for name, area in policy.household.areas.items() if policy else ():
        if area.channel:
            found.setdefault(area.channel, []).append(f"the area {name}")
    return {channel: " and ".join(purposes) for channel, purposes in found.items()}


def _people(policy: Policy) -> People:
    """Return everybody's accounts in Slack."""
    return {
        person.id: [Account(one.team, one.user, one.enterprise or "") for one in person.slack]
        for person in policy.household.people.values()
    }


def _hosts(patient: Patient, policy: Policy) -> Iterator[Finding]:
    names = list(policy.inventory.hosts)
    if not names:
        yield note("the hosts", "there are none yet: keyturn inventory enroll adds the first")
        return
    with closing(Fleet(policy.inventory, Sessions(patient.policy))) as fleet:
        found = sorted(standings(fleet, names), key=lambda each: names.index(each.host))
    sick = [each for each in found if not each.well]
    for each in sick[:_MOST_HOSTS_TOLD]:
        yield mend(f"host {each.host}", each.trouble)
    if len(sick) > _MOST_HOSTS_TOLD:
        more = len(sick) - _MOST_HOSTS_TOLD
        yield mend("the hosts", f"{more} more are not well: keyturn inventory check lists them")
    if len(sick) < len(names):
        yield ok("the hosts", f"{len(names) - len(sick)} of {len(names)} answer")
    for each in found:
        if each.well and each.advice:
            yield note(f"host {each.host}", each.advice)
