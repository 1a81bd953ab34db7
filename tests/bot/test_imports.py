"""Heavy modules are imported only by commands that need them."""

import subprocess
import sys
from collections.abc import Sequence

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
    *("opentelemetry.sdk", "opentelemetry.exporter", "psycopg", "sqlalchemy.dialects.postgresql"),
    # Of people on duty, whose calendars another process expands, and of notices by e-mail.
    *("icalendar", "recurring_ical_events", "dateutil", "smtplib", "email.headerregistry"),
)


def _list_loaded_modules(code: str, names: Sequence[str]) -> list[str]:
    script = f"import sys\n{code}\nprint(*[name for name in {names!r} if sys.modules.get(name)])"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={}
    )
    return result.stdout.splitlines()[-1].split()


def test_help_imports_no_heavy_modules() -> None:
    code = "from bot.__main__ import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert _list_loaded_modules(code, (*SERVICE, *RARE)) == []


def test_serve_imports_no_rarely_needed_modules() -> None:
    needed = ["paramiko", "fastapi", "sqlalchemy"]
    # Where no collector of spans is named, this loads none of what sends them.
    code = "from bot import app, settings\napp.export_spans(settings.Settings(_env_file=None))"
    assert _list_loaded_modules(code, [*needed, *RARE]) == needed
