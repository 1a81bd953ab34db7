"""Secrets in output and reasons are redacted in Slack messages and on pages."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from bot.__main__ import main
from bot.audit import verification
from bot.db.database import Database
from bot.model.redaction import Redactor
from bot.model.signing import SigningKey
from connectors.errors import CommandError
from tests.bot.databases import add_schema
from tests.bot.features.tables import collect
from tests.bot.harness import Harness, open_harness
from tests.bot.slack.chat import Chat, open_chat
from tests.bot.test_canaries import CANARIES, everything_spelt, traces
from tests.bot.web.conftest import create_site
from tests.toy import SetSwitch

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[3]
STARTERS = {"subprocess", "pty", "multiprocessing"}


@pytest.fixture
def redacting_harness(tmp_path: Path) -> Iterator[Harness]:
    yield from _open_harness(tmp_path, Redactor(CANARIES))


@pytest.fixture
def plain_harness(tmp_path: Path) -> Iterator[Harness]:
    """The twin: nobody takes anything out."""
    yield from _open_harness(tmp_path, Redactor())


def _open_harness(directory: Path, redactor: Redactor) -> Iterator[Harness]:
    store = Database(f"sqlite:///{directory / 'keyturn.db'}", SigningKey.create(), redactor)
    add_schema(store)
    with store.transaction() as tx:
        verification.open_log(tx)
    with open_harness(directory, database=store) as harness:
        yield harness


def _read_pages(harness: Harness) -> str:
    """Return every page that tells of a run whose host said all of them, and why it was asked."""
    run = harness.request(SetSwitch(host="lb1", name="lamp", value="on"), reason=CANARIES[1])

    def fail(_host: str, _words: str) -> None:
        raise CommandError(f"output: {everything_spelt()}")

    harness.fleet.before_send = fail
    harness.approve(run)
    browser = create_site(harness).browser("olga")
    paths = ("/", "/runs", f"/runs/{run.id}", f"/runs/{run.id}/erase", "/changelog", "/runs.csv")
    return "\n".join(browser.get(path).text for path in (*paths, "/runs.json", "/hosts"))


def test_no_page_holds_a_canary(redacting_harness: Harness):
    assert traces(_read_pages(redacting_harness)) == []


def test_without_redaction_pages_show_a_canary(plain_harness: Harness):
    assert traces(_read_pages(plain_harness))


async def _read_slack_bodies(harness: Harness) -> str:
    """Return all that was sent to chat about such a run."""
    async with open_chat(harness) as chat:
        assert isinstance(chat, Chat)

        def fail(_host: str, _words: str) -> None:
            raise CommandError(f"output: {everything_spelt()}")

        harness.fleet.before_send = fail
        reply = await chat.type(f"toy set lb1 lamp on because {CANARIES[1]}")
        assert chat.slack.posted, reply.body
        await chat.press("approve", "U0OLGA")
        await chat.settle()
        answer = await chat.type("runs")
        assert chat.harness.get_run(1).is_ended
        return json.dumps(chat.slack.calls, ensure_ascii=False) + answer.body.decode()


async def test_no_message_to_slack_holds_a_canary(redacting_harness: Harness):
    assert traces(await _read_slack_bodies(redacting_harness)) == []


async def test_without_redaction_messages_to_slack_hold_a_canary(plain_harness: Harness):
    assert traces(await _read_slack_bodies(plain_harness))


def test_no_command_takes_a_secret_as_argument_and_few_programs_are_started():
    """Everybody on a machine can read those: so no command takes one, and we start no program.

    But for `ssh-keygen`, which `keyturn sign` has sign a file with a person's own key and
    `keyturn setup` make the key of the service, without a passphrase; `shellcheck`, which reads a
    script as its input; the command that a person types behind `keyturn runbook new --from`; and
    what the tables of features name.
    """
    named = [
        f"{path} {option}"
        for path, command in _list_commands(main, "keyturn")
        for parameter in command.params
        for option in parameter.opts
        if any(word in option for word in ("password", "secret", "passphrase", "private"))
    ]
    assert named == []
    started = [
        str(file.relative_to(ROOT))
        for folder in ("bot", "connectors", "runbooks")
        for file in sorted((ROOT / folder).rglob("*.py"))
        if STARTERS & _list_imports(file)
    ]
    of_core = ["own_runbooks.py", "runbook_kit/shell_lint.py", "setup.py", "signing.py"]
    assert started == [
        *(f"bot/cli/{file}" for file in of_core),
        *sorted(f"bot/features/{file}" for file in collect("PROGRAM_STARTERS")),
    ]


def test_subprocess_import_is_detected_by_the_test(tmp_path: Path):
    """The twin."""
    file = tmp_path / "starter.py"
    file.write_text("import subprocess\n")
    assert STARTERS & _list_imports(file)


def _list_commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            command_found = command.get_command(context, name)
            assert command_found
            yield from _list_commands(command_found, f"{path} {name}")


def _list_imports(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names
