"""The features of Keyturn, a folder and a line each, and what they add together."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.cli.command_table import CommandEntry
from bot.feature import Feature, ServerContext, ServerPart
from bot.features import (
    alerts,
    collector,
    drift,
    erasure,
    freezes,
    host_lists,
    importing,
    mcp,
    nagios,
    notices,
    offline,
    oncall,
    rebuild,
    redundancy,
    runbook_preview,
    schedules,
    scim,
    setup,
    tickets,
    time_stamps,
    wait_report,
    webhooks,
    witness,
)

if TYPE_CHECKING:
    from fastapi import APIRouter

    from bot.api.deps import CollectMetrics
    from bot.health import CheckWithPolicy
    from bot.queries.digest import BuildDigest, ListEnds
    from bot.slack.features import ChatFeatures
    from bot.web.pages import Pages
    from bot.workflow.hooks import WorkflowHooks

FEATURES: Sequence[Feature] = (
    # Before what depends on who the people are, such as who of them is on duty.
    scim.FEATURE,
    alerts.FEATURE,
    collector.FEATURE,
    drift.FEATURE,
    erasure.FEATURE,
    freezes.FEATURE,
    host_lists.FEATURE,
    importing.FEATURE,
    mcp.FEATURE,
    nagios.FEATURE,
    notices.FEATURE,
    offline.FEATURE,
    oncall.FEATURE,
    rebuild.FEATURE,
    redundancy.FEATURE,
    runbook_preview.FEATURE,
    schedules.FEATURE,
    setup.FEATURE,
    tickets.FEATURE,
    time_stamps.FEATURE,
    wait_report.FEATURE,
    webhooks.FEATURE,
    witness.FEATURE,
)


def list_commands() -> Sequence[CommandEntry]:
    return [command for one in FEATURES for command in one.commands]


def load_pages() -> "Sequence[Pages]":
    return [pages for one in FEATURES for pages in one.load_pages()]


def load_routes() -> "Sequence[APIRouter]":
    return [router for one in FEATURES for router in one.load_routes()]


def load_chat() -> "ChatFeatures":
    from bot.slack.features import ChatFeatures

    found = [one.load_chat() for one in FEATURES if one.load_chat]
    return ChatFeatures(
        notices=[build for one in found for build in one.notices],
        words=[words for one in found for words in one.words],
        is_quiet=[hook for one in found for hook in one.is_quiet],
        read_home_section=[read for one in found for read in one.read_home_section],
        list_started_duties=[list_of for one in found for list_of in one.list_started_duties],
        handover_sections=[build for one in found for build in one.handover_sections],
        build_parts=[build for one in found for build in one.build_parts],
        list_direct_notices=[list_of for one in found for list_of in one.list_direct_notices],
    )


def load_hooks() -> "WorkflowHooks":
    from bot.workflow.hooks import WorkflowHooks

    found = [one.load_hooks() for one in FEATURES if one.load_hooks]
    return WorkflowHooks(
        policy_facts=[facts for one in found for facts in one.policy_facts],
        guards=[guard for one in found for guard in one.guards],
        on_run_end=[hook for one in found for hook in one.on_run_end],
        list_plan_notes=[hook for one in found for hook in one.list_plan_notes],
        read_value_facts=[hook for one in found for hook in one.read_value_facts],
        build_host_duties=[hook for one in found for hook in one.build_host_duties],
        schedules=next((one.schedules for one in found if one.schedules), None),
    )


def load_checks() -> "Sequence[CheckWithPolicy]":
    return [check for one in FEATURES for check in one.load_checks()]


def load_metrics() -> "Sequence[CollectMetrics]":
    return [collect for one in FEATURES for collect in one.load_metrics()]


def load_digest() -> "Sequence[BuildDigest]":
    return [build for one in FEATURES for build in one.load_digest()]


def load_ends() -> "Sequence[ListEnds]":
    return [list_ends for one in FEATURES for list_ends in one.load_ends()]


def build_server_parts(context: ServerContext) -> Sequence[ServerPart]:
    return [one.build_server_part(context) for one in FEATURES]
