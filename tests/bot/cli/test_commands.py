"""Every command of `keyturn`, and its entry in the change log."""

from collections.abc import Iterator

import click

from bot.__main__ import main
from bot.audit import events
from tests.bot.features.tables import collect
from tests.cli_commands import load_commands

READ_ONLY = "looks"
# Through the service, with a token: what holds for its owner holds there.
SERVICE = "service"
# Files of the policy directory, the database's schema, or nothing that is kept.
FILES = "files"

# Every command. Of those that change what Keyturn knows, the kind of their entry.
COMMANDS = {
    "accept": SERVICE,
    "again": SERVICE,
    "agent add": "agent added",
    "agent confirm": "agent confirmed",
    "agent end": "agent ended",
    "agent list": READ_ONLY,
    "agent pause": "agent paused",
    "agent resume": "agent resumed",
    "agent token": "token created",
    "approve": SERVICE,
    "sign": SERVICE,
    "request": SERVICE,
    "backup": "backed up",
    "ban": "banned",
    "break-glass": SERVICE,
    "changed": SERVICE,
    "changelog acknowledge": "loss acknowledged",
    "changelog export": "log exported",
    "changelog key": READ_ONLY,
    "changelog proof": READ_ONLY,
    "changelog rotate-key": "key",
    "changelog set-aside": "rows set aside",
    "changelog show": READ_ONLY,
    "changelog verify": READ_ONLY,
    "completion": READ_ONLY,
    "counter": SERVICE,
    "db check": READ_ONLY,
    "db copy": "database moved",
    "db grants": READ_ONLY,
    "db upgrade": FILES,
    "delegate end": "delegation revoked",
    "delegate list": READ_ONLY,
    "delegate to": "delegation created",
    "deny": SERVICE,
    "doctor": READ_ONLY,
    "factors forget": "all factors removed",
    "factors list": READ_ONLY,
    "grant": "grant created",
    "grants end": "grant revoked",
    "grants list": READ_ONLY,
    "hold": SERVICE,
    "hosts": SERVICE,
    "init": FILES,
    "inventory check": READ_ONLY,
    "inventory confirm": FILES,
    "inventory enrol": FILES,
    "inventory import ansible": FILES,
    "inventory import ssh-config": FILES,
    "locks": SERVICE,
    "manifest": READ_ONLY,
    "policy check": READ_ONLY,
    "policy explain": READ_ONLY,
    "policy page": READ_ONLY,
    "policy signers": READ_ONLY,
    "restore": "restored",
    "review": SERVICE,
    "resume": "everything resumed",
    "run document": SERVICE,
    "run resolve": SERVICE,
    "run show": SERVICE,
    "runbooks": READ_ONLY,
    "runs": SERVICE,
    "serve": "settings changed",
    "runbook enable": "local runbook enabled",
    "runbook explain": READ_ONLY,
    "runbook lint": READ_ONLY,
    "runbook new": FILES,
    "runbook schema": READ_ONLY,
    "runbook test": READ_ONLY,
    "runbook try": READ_ONLY,
    "sign-in": "sign-in link created",
    "stop": "everything stopped",
    "host-files": READ_ONLY,
    "signing-page": READ_ONLY,
    "sudoers": READ_ONLY,
    "token list": READ_ONLY,
    "token new": "token created",
    "token revoke": "token revoked",
    "worker": READ_ONLY,
    "unban": "ban lifted",
    "undo": SERVICE,
    "plan": SERVICE,
    "submit": SERVICE,
    "replan": SERVICE,
    "views": SERVICE,
    "pending": SERVICE,
    "reassign": SERVICE,
    "answer": SERVICE,
    "question": SERVICE,
    "withdraw": SERVICE,
    **collect("COMMANDS"),
}

# Those without `--json`, and why.
NOT_FOR_PROGRAMS = {
    "changelog export": "--format says in which of four forms, all of them for programs",
    "changelog key": "one line, for a setting",
    "changelog proof": "a format of its own, for other tools",
    "completion": "a program for the shell",
    "db grants": "SQL, for psql",
    "init": "writes files for people to edit",
    "manifest": "what Slack reads, as it reads it",
    **collect("COMMANDS_WITHOUT_JSON"),
    "runbook explain": "sentences, for people who review a page",
    "runbook schema": "a JSON Schema, for editors",
    "serve": "runs until interrupted; KEYTURN_LOG=json is its answer",
    "worker": "runs until interrupted; KEYTURN_LOG=json is its answer",
}


def list_command_names(command: click.Command, *words: str) -> Iterator[str]:
    yield from (" ".join(path) for path, _ in _leaves(command, *words))


def _leaves(
    command: click.Command, *words: str
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        yield words, command
        return
    for name, inner in load_commands(command).items():
        yield from _leaves(inner, *words, name)


def _without_json(command: click.Command) -> set[str]:
    return {
        " ".join(words)
        for words, leaf in _leaves(command)
        if not any("--json" in option.opts for option in leaf.params)
    }


def test_every_command_has_json_or_a_reason_why_not():
    assert _without_json(main) == set(NOT_FOR_PROGRAMS)
    assert _without_json(click.Group(commands=[click.Command("tell")])) == {"tell"}


def test_every_command_is_in_the_table_of_change_log_entries():
    assert set(list_command_names(main)) == set(COMMANDS)


def test_command_missing_from_the_table_is_detected():
    @click.group()
    def other() -> None:
        """Hold what is there, and one more."""

    for name, command in load_commands(main).items():
        other.add_command(command, name)
    other.add_command(click.Command("open-sesame"))
    assert set(list_command_names(other)) - set(COMMANDS) == {"open-sesame"}


def test_every_changing_command_has_a_change_log_entry():
    kinds = {kind for kind in COMMANDS.values() if kind not in {READ_ONLY, SERVICE, FILES}}
    assert kinds - {each.kind for each in events.EVENT_TYPES} == set()
