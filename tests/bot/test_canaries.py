"""Secret canaries are planted at every source, and searched in every sink."""

import base64
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from bot.audit import verification
from bot.db.database import Database
from bot.model.redaction import Redactor
from bot.model.run import State
from bot.model.signing import SigningKey
from bot.observability import RedactingFormatter, list_login_secrets
from bot.queries.log_formats import iterate_export
from bot.settings import Settings
from connectors.errors import CommandError
from connectors.inventory import Inventory
from tests.bot.databases import add_schema
from tests.bot.harness import Harness, open_harness
from tests.toy import SetSwitch

CANARIES = [f"Canary-{n:02d}/+{'ab=&%<'[n % 6]}-of-ours" for n in range(40)]


def _list_spellings(secret: str) -> Iterator[str]:
    data = secret.encode()
    yield secret
    yield base64.b64encode(data).decode()
    yield base64.b64encode(b"x" + data + b"y").decode()
    yield data.hex()
    yield quote(secret, safe="")
    yield f"{secret[:9]}\n{secret[9:]}"


def everything_spelt() -> str:
    return "\n".join(spelt for canary in CANARIES for spelt in _list_spellings(canary))


def traces(text: str) -> list[str]:
    flat = "".join(text.split())
    places: list[str] = []
    for canary in CANARIES:
        data = canary.encode()
        certain = base64.b64encode(b"x" + data + b"y").decode()[2:-4]
        forms = (canary, base64.b64encode(data).decode()[:-4], certain, data.hex())
        places += [form for form in (*forms, quote(canary, safe="")) if form in flat]
    return places


def _list_sink_contents(directory: Path, redactor: Redactor) -> Iterator[str]:
    """Let a host say every canary, in its answer and in its trouble; yield what every sink holds.

    What chat and pages show is drawn from the database, which is one of them.
    """
    store = Database(f"sqlite:///{directory / 'keyturn.db'}", SigningKey.create(), redactor)
    add_schema(store)
    with store.transaction() as tx:
        verification.open_log(tx)
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    handler.setFormatter(RedactingFormatter(redactor))
    log = logging.getLogger("bot.canaries")
    log.addHandler(handler)
    with open_harness(directory, database=store) as harness:
        _emit_every_canary(harness)
        try:
            raise ValueError(everything_spelt())
        except ValueError:
            log.exception("a fault that quotes %s", CANARIES[0])
        with store.reading() as tx:
            yield "\n".join(json.dumps(line, ensure_ascii=False) for line in iterate_export(tx))
        with store.engine.connect() as connection:
            yield "\n".join(connection.connection.driver_connection.iterdump())  # pyright: ignore
    log.removeHandler(handler)
    yield heard.getvalue()
    yield from (file.read_bytes().decode(errors="replace") for file in directory.glob("keyturn*"))


def _emit_every_canary(harness: Harness) -> None:
    waiting = harness.request(SetSwitch(host="lb1", name="lamp", value="on"), reason=CANARIES[1])

    def fail(_host: str, _words: str) -> None:
        raise CommandError(f"output: {everything_spelt()}")

    harness.fleet.before_send = fail
    assert harness.approve(waiting).state is State.FAILED


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("bot.canaries").propagate = False


def test_secret_canaries_are_redacted_in_every_log_and_database(tmp_path: Path, quiet: None):
    for sink in _list_sink_contents(tmp_path, Redactor(CANARIES)):
        assert traces(sink) == []


def test_without_the_redactor_every_secret_canary_is_found(tmp_path: Path, quiet: None):
    """The twin: who looks like this finds them where nobody takes them out."""
    sinks = list(_list_sink_contents(tmp_path, Redactor()))
    assert set(traces(sinks[0])) >= set(CANARIES)
    assert set(traces(sinks[2])) >= set(CANARIES)


def test_redactor_knows_every_secret_of_settings_and_inventory(tmp_path: Path):
    (tmp_path / "password").write_text("of-a-switch-2\n")
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJqpOcKG0QUlYJdTUTUiDYIiZlWfjkcoaeW6BYlZs/0B"
    device = {"address": "192.0.2.1", "user": "u", "host_key": key, "area": "net"}
    device |= {"platform": "cisco_ios", "password_file": "password"}
    (tmp_path / "bmc").write_text("of-a-bmc-3\n")
    bmc = {"address": "192.0.2.2", "user": "u", "password_file": "bmc", "ca": "ca.pem"}
    server = {"address": "192.0.2.1", "host_key": key, "area": "net", "bmc": bmc}
    (tmp_path / "msa").write_text("of-an-array-4\n")
    array: dict[str, object] = {"address": "192.0.2.3", "platform": "hp_msa", "area": "net"}
    array["msa"] = {"user": "u", "password_file": "msa", "ca": "ca.pem"}
    hosts = {"sw1": device, "nas1": server, "msa1": array}
    inventory = Inventory.model_validate({"hosts": hosts})
    settings = Settings(
        database="postgresql+psycopg://keyturn:p%40ss-of-ours@db/keyturn",
        slack_bot_token="xoxb-our-token",  # pyright: ignore[reportArgumentType] - as it is read
        slack_signing_secret="our-signing-secret",  # pyright: ignore[reportArgumentType]
        slack_team="T1",
    )
    redactor = Redactor([*settings.secrets, *list_login_secrets(inventory, tmp_path)])
    for secret in (
        "p@ss-of-ours",
        "xoxb-our-token",
        "our-signing-secret",
        "of-a-switch-2",
        "of-a-bmc-3",
        "of-an-array-4",
    ):
        assert redactor.has_secret(f"it is {secret}")
        assert secret not in str(settings.shown)
    assert "p%40ss" not in str(settings.shown)
    assert settings.shown["database"] == "postgresql+psycopg://db/keyturn"
