"""Secrets of the settings come from files, credentials of systemd, and OpenBao or Vault."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pydantic import ValidationError

from bot.maintenance.check_installation import check_records
from bot.maintenance.installation import Installation
from bot.model.redaction import Redactor
from bot.secret_sources import resolve_secret
from bot.settings import SECRETS, Settings, list_secret_files
from tests.cli_process import run_keyturn

COLLECTOR, TOKEN = "KEYTURN_COLLECTOR", "KEYTURN_COLLECTOR_TOKEN"
VAULT_TOKEN = "hvs.of-the-service"
# As OpenBao 2 and Vault 1 answer GET /v1/secret/data/keyturn.
ANSWER = {
    "request_id": "1e1ab2b3-6b3b-4d8a-9d5e-1c1e7cf3a1b2",
    "lease_id": "",
    "renewable": False,
    "lease_duration": 0,
    "data": {
        "data": {"token": "of the collector", "port": 8088},
        "metadata": {"created_time": "2026-01-01T00:00:00Z", "destroyed": False, "version": 3},
    },
    "wrap_info": None,
    "warnings": None,
    "auth": None,
}


class Vault(BaseHTTPRequestHandler):
    """Answers as the KV engine does, and leads elsewhere for /v1/moved."""

    def do_GET(self) -> None:
        if self.path.startswith("/v1/moved"):
            self.send_response(307)
            self.send_header("Location", "/v1/secret/data/keyturn")
            self.end_headers()
            return
        is_known = self.path == "/v1/secret/data/keyturn"
        is_allowed = self.headers["X-Vault-Token"] == VAULT_TOKEN
        status = 200 if is_known and is_allowed else 404 if is_allowed else 403
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(ANSWER if status == 200 else {"errors": []}).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Say nothing."""


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Vault) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        (tmp_path / "token").write_text(f"{VAULT_TOKEN}\n")
        monkeypatch.setenv("VAULT_ADDR", address)
        monkeypatch.setenv("VAULT_TOKEN_FILE", str(tmp_path / "token"))
        monkeypatch.delenv("VAULT_TOKEN", raising=False)
        yield address
        server.shutdown()


def test_secret_comes_from_a_file_and_is_redacted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    file = tmp_path / "token"
    file.write_text("of the collector\n")
    monkeypatch.setenv(COLLECTOR, "https://siem.example.com/")
    monkeypatch.setenv(TOKEN, f"file:{file}")
    monkeypatch.setenv("KEYTURN_DATABASE", f"file:{tmp_path / 'database'}")
    (tmp_path / "database").write_text("postgresql://keyturn:hunter2@db/keyturn")
    settings = Settings()
    assert settings.collector_token.get_secret_value() == "of the collector"
    assert settings.database == "postgresql+psycopg://keyturn:hunter2@db/keyturn"
    assert {"of the collector", "hunter2"} <= set(settings.secrets)
    assert settings.shown["collector_token"] == "set"
    assert list_secret_files()[TOKEN] == file


def test_credentials_of_systemd_are_settings(tmp_path: Path):
    """Their directory is read once, when a process begins."""
    (tmp_path / "keyturn_collector").write_text("https://siem.example.com/\n")
    (tmp_path / "keyturn_collector_token").write_text("of the collector\n")
    program = "from bot.settings import Settings; print(Settings().secrets)"
    environment = os.environ | {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        check=True,
        text=True,
    )
    assert "'of the collector'" in done.stdout


def test_secret_comes_from_the_kv_engine(vault: str):
    assert vault
    assert resolve_secret("vault:secret/keyturn#token") == "of the collector"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("file:token", "must be an absolute path"),
        ("file:/nowhere/token", "cannot read /nowhere/token: No such file or directory"),
        ("file:/dev/null", "/dev/null is empty"),
        ("vault:secret#token", "must be vault:MOUNT/PATH#KEY"),
        ("vault:secret/keyturn", "must be vault:MOUNT/PATH#KEY"),
        ("vault:secret/other#token", "answers 404 for secret/other: there is no such secret"),
        ("vault:secret/keyturn#password", "secret/keyturn at .* has no key password"),
        ("vault:secret/keyturn#port", "port of secret/keyturn at .* is not text"),
        ("vault:moved/keyturn#token", "answers 307"),
    ],
)
def test_secret_that_cannot_be_read_is_named(vault: str, value: str, says: str):
    assert vault
    with pytest.raises(ValueError, match=says):
        resolve_secret(value)


def test_token_is_sent_over_tls_or_on_this_machine_only(
    vault: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("VAULT_TOKEN", "wrong")
    with pytest.raises(ValueError, match=r"answers 403 .* the token may not read it"):
        resolve_secret("vault:secret/keyturn#token")
    monkeypatch.setenv("VAULT_ADDR", vault.replace("127.0.0.1", "vault.example.com"))
    with pytest.raises(ValueError, match="needs VAULT_ADDR: https://"):
        resolve_secret("vault:secret/keyturn#token")


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("VAULT_TOKEN", "hvs.hidden\nmore", "VAULT_TOKEN is not a token alone"),
        ("VAULT_TOKEN", "hvs.hidden…", "VAULT_TOKEN is not a token alone"),
        ("VAULT_ADDR", "https://ann:hvs.hidden@127.0.0.1", "must be an address such as"),
        ("VAULT_ADDR", "https://127.0.0.1:99999", "must be an address such as"),
        ("VAULT_CACERT", "/nowhere/hidden", "of /nowhere/hidden: No such file or directory"),
        ("VAULT_CACERT", __file__, "VAULT_CACERT: cannot read certificates in PEM"),
    ],
)
def test_odd_variable_of_vault_is_named_without_its_secret(
    vault: str, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str
):
    if variable == "VAULT_CACERT":
        monkeypatch.setenv("VAULT_ADDR", vault.replace("http:", "https:"))
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=says) as raised:
        resolve_secret("vault:secret/keyturn#token")
    assert "hvs.hidden" not in str(raised.value)
    assert type(raised.value) is ValueError, "a subclass has the value too"


def test_settings_name_the_variable_whose_secret_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv(TOKEN, f"file:{tmp_path / 'token'}")
    with pytest.raises(ValidationError, match=r"collector_token"):
        Settings()
    done = run_keyturn(tmp_path, "serve")
    assert done.returncode == 1
    assert f"{TOKEN}: cannot read {tmp_path / 'token'}" in done.stderr


def test_doctor_and_start_name_a_secret_that_others_can_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    file = tmp_path / "token"
    file.write_text("of the collector")
    file.chmod(0o600)

    def read_finding() -> tuple[str, str]:
        installation = Installation(
            data=tmp_path,
            policy=tmp_path / "policy",
            keys=tmp_path,
            database=f"sqlite:///{tmp_path / 'keyturn.db'}",
            redactor=Redactor(()),
            secret_files={TOKEN: file},
        )
        results = {one.subject: one for one in check_records(installation)}
        found = results[f"secret {TOKEN}"]
        return found.level, found.message

    assert read_finding() == ("ok", f"user {file.owner()} can read {file}")
    file.chmod(0o640)
    assert read_finding()[0] == ("ok" if os.geteuid() else "error")
    file.chmod(0o644)
    assert read_finding()[0] == "error"
    assert "others can read or write it: chmod 600 it" in read_finding()[1]
    monkeypatch.setenv(COLLECTOR, "https://siem.example.com/")
    monkeypatch.setenv(TOKEN, f"file:{file}")
    done = run_keyturn(tmp_path, "serve")
    assert done.returncode == 1
    assert f"{file} may contain secrets" in done.stderr


def test_settings_page_names_every_secret():
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    paragraph = page.partition("## Secrets\n")[2].partition("can name where it is")[0]
    assert set(re.findall(r"KEYTURN_(\w+)", paragraph)) == {name.upper() for name in SECRETS}
