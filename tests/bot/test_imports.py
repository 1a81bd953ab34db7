"""What is loaded only by those who need it, counted by name: it tells on every start."""

import subprocess
import sys
from collections.abc import Sequence

import pytest

# To speak SSH, tables, pages: no command but those that need one waits for them.
SERVICE = ("sqlalchemy", "paramiko", "fastapi", "starlette", "uvicorn", "pydantic", "jinja2")
# What most requests, and many installations, never touch.
RARE = (
    # Of security keys, codes, and the picture of one.
    *("webauthn", "cbor2", "OpenSSL", "pyasn1", "pyotp", "segno"),
    # To migrate a database that is behind.
    *("alembic", "mako", "pygments"),
    # Of chat, where there is none.
    *("aiohttp", "slack_bolt", "slack_sdk", "bot.slack", "tests.slack_emulator"),
    # Of network devices, of signing in elsewhere, of spans, of workers, of another database.
    *("netmiko", "textfsm", "ntc_templates", "authlib", "joserfc", "procrastinate"),
    *("opentelemetry.sdk", "opentelemetry.exporter", "psycopg"),
)
# What is loaded once the port answers.
LATER = ("bot.api.app", "bot.api.runs", "aiohttp", "slack_bolt", "slack_sdk", "bot.slack.app")
# What libraries load for themselves, and use for nothing of ours.
NEEDLESS = ("invoke", "pydantic.v1")
COMMAND = "from bot.__main__ import main\nmain(['runbooks', 'uptime'], standalone_mode=False)\n"


def _loaded(code: str, names: Sequence[str]) -> list[str]:
    script = f"import sys\n{code}\nprint(*[name for name in {names!r} if sys.modules.get(name)])"
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={}
    )
    return told.stdout.splitlines()[-1].split()


def test_help_loads_nothing_heavy() -> None:
    code = "from bot.__main__ import main\nmain(['--help'], standalone_mode=False)"
    assert _loaded(code, (*SERVICE, *RARE)) == []


def test_serving_loads_nothing_that_is_rarely_needed() -> None:
    assert _loaded("import bot.app", RARE) == []


def test_nobody_waits_for_the_api_and_the_libraries_of_chat_before_the_port_answers() -> None:
    assert _loaded("import bot.app, bot.app", LATER) == []


def test_what_libraries_load_for_nothing_is_not_loaded_by_any_command() -> None:
    assert _loaded(f"{COMMAND}import bot.app", NEEDLESS) == []


def test_libraries_would_load_it_by_themselves() -> None:
    assert _loaded("import bot.app", NEEDLESS) == [*NEEDLESS]


@pytest.mark.parametrize("name", ["paramiko", "fastapi", "sqlalchemy"])
def test_what_is_loaded_is_seen(name: str) -> None:
    assert _loaded("import bot.app", [name]) == [name]


# An API with a body, a key and an error is described: all kinds of FastAPI's models are built.
DESCRIBED = """
import json
from fastapi import Depends, FastAPI
from fastapi.openapi.models import OpenAPI
from fastapi.security import HTTPBearer
from pydantic import BaseModel
built = OpenAPI.__pydantic_complete__
class Body(BaseModel):
    words: str
def asked(number: int, body: Body) -> Body: ...
api = FastAPI()
api.post("/{number}", dependencies=[Depends(HTTPBearer())])(asked)
print(built, Body.__pydantic_complete__, json.dumps(api.openapi()))
"""


def _described(before: str) -> Sequence[str]:
    script = f"from bot import heap\n{before}\n{DESCRIBED}"
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={}
    )
    return told.stdout.split(maxsplit=2)


def test_the_models_of_descriptions_are_built_when_the_first_is_wanted_and_describe_the_same():
    usually, deferred = _described(""), _described("heap.defer()")
    assert usually[:2] == ["True", "True"]
    assert deferred == ["False", *usually[1:]]
    assert "HTTPValidationError" in usually[2]


@pytest.mark.parametrize(("before", "looked_for"), [("heap.prepare()", "no"), ("", "yes")])
def test_plugins_of_pydantic_are_not_looked_for(before: str, looked_for: str) -> None:
    script = f"from bot import heap\n{before}\nfrom pydantic.plugin import _loader\n"
    script += "_loader.get_plugins()\nprint('no' if _loader._plugins is None else 'yes')"
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={}
    )
    assert told.stdout.split() == [looked_for]
