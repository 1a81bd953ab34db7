"""Time stamps of the log by a real authority: openssl ts, behind an HTTP server."""

import subprocess
import threading
from base64 import b64decode
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bot.audit import change_log, events, tile_tree
from bot.audit.event_type import UnknownEvent
from bot.db import cosignatures
from bot.db.database import Database
from bot.features.time_stamps import status
from bot.features.time_stamps.stamper import TimeStampAuthority, TimeStamper, TimeStampError
from bot.model.times import HOUR
from bot.queries import log_formats
from tests.bot.audit.fixed_log import KEY, write_fixed_log
from tests.bot.databases import create_sqlite_database
from tests.playground.daemon import find_program

_CONFIGURATION = """
[req]
distinguished_name = name
[name]
[tsa_cert]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = critical, timeStamping
[ca_cert]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
[tsa]
default_tsa = tsa_config
[tsa_config]
serial = {place}/serial
signer_cert = {place}/tsa.pem
signer_key = {place}/tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
ess_cert_id_alg = sha256
"""


class Openssl:
    """An authority. altered: what it does to each stamp before it returns it."""

    def __init__(self, place: Path) -> None:
        self._place, self._program = place, find_program("/usr/bin/openssl", package="openssl")
        place.mkdir()
        self.configuration = place / "openssl.cnf"
        self.configuration.write_text(_CONFIGURATION.format(place=place))
        (place / "serial").write_text("01\n")
        self._create_certificates()
        self.certificates = place / "ca.pem"
        self.status = 200

    def _create_certificates(self) -> None:
        ca = ("-config", str(self.configuration), "-newkey", "rsa:2048", "-nodes", "-days", "2")
        self.run(
            "req", "-x509", *ca, "-extensions", "ca_cert", "-subj", "/CN=ca", *self._name("ca")
        )
        tsa = ("-extensions", "tsa_cert", "-subj", "/CN=tsa", *self._name("tsa"))
        signer = ("-CA", str(self._place / "ca.pem"), "-CAkey", str(self._place / "ca.key"))
        self.run("req", "-x509", *ca, *signer, *tsa)

    def _name(self, name: str) -> tuple[str, ...]:
        place = self._place
        return ("-keyout", str(place / f"{name}.key"), "-out", str(place / f"{name}.pem"))

    def run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([self._program, *words], capture_output=True, check=True)

    def reply(self, query: bytes) -> bytes:
        file, out = self._place / "query.tsq", self._place / "reply.tsr"
        file.write_bytes(query)
        words = ("-config", str(self.configuration), "-section", "tsa_config")
        self.run("ts", "-reply", *words, "-queryfile", str(file), "-out", str(out))
        return out.read_bytes()


@pytest.fixture(scope="module")
def openssl(tmp_path_factory: pytest.TempPathFactory) -> Openssl:
    return Openssl(tmp_path_factory.mktemp("tsa") / "tsa")


@pytest.fixture
def authority(openssl: Openssl) -> Generator[TimeStampAuthority]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(openssl.status)
            self.end_headers()
            self.wfile.write(openssl.reply(query))

        def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield TimeStampAuthority(f"http://127.0.0.1:{server.server_port}/", openssl.certificates)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def database(tmp_path: Path) -> Generator[Database]:
    database = create_sqlite_database(tmp_path / "keyturn.db", KEY)
    write_fixed_log(database, 3)
    yield database
    database.close()


def test_stamp_is_exported_and_openssl_verifies_it(
    tmp_path: Path, database: Database, authority: TimeStampAuthority, openssl: Openssl
) -> None:
    TimeStamper(database, authority).stamp_when_due()
    with database.reading() as tx:
        tile_tree.write_tiles(tx, tmp_path / "tiles", lambda _: None)
        [stamp] = [
            one["time_stamp"] for one in log_formats.iterate_export(tx) if "time_stamp" in one
        ]
    file = tmp_path / "tiles" / "time-stamps" / "3.tsr"
    assert file.read_bytes() == b64decode(stamp)
    words = ("-in", str(file), "-data", str(file.with_suffix(".txt")))
    done = openssl.run("ts", "-verify", *words, "-CAfile", str(openssl.certificates))
    assert b"Verification: OK" in done.stdout + done.stderr
    file.with_suffix(".txt").write_text("another log\n")
    with pytest.raises(subprocess.CalledProcessError):
        openssl.run("ts", "-verify", *words, "-CAfile", str(openssl.certificates))


def test_log_is_stamped_once_an_hour(database: Database, authority: TimeStampAuthority) -> None:
    stamper = TimeStamper(database, authority)
    stamper.stamp_when_due()
    write_fixed_log(database, 5)
    stamper.stamp_when_due()
    with database.reading() as tx:
        assert [size for size, _ in cosignatures.iterate_time_stamps(tx)] == [3]
        last = cosignatures.get_newest_time_stamp(tx)
    assert last is not None
    with database.engine.connect() as connection:
        hour = 3_600_000_000
        connection.exec_driver_sql("UPDATE time_stamp SET at = at - ?", (hour,))
        connection.commit()
    stamper.stamp_when_due()
    with database.reading() as tx:
        assert [size for size, _ in cosignatures.iterate_time_stamps(tx)] == [3, 5]


def _list_levels(database: Database) -> list[str]:
    with database.reading() as tx:
        results = list(status.check_time_stamps(tx, None))  # pyright: ignore[reportArgumentType] - it reads no policy
    return [one.level for one in results]


def test_log_without_a_stamp_of_the_last_hour_is_not_healthy(
    database: Database, authority: TimeStampAuthority
) -> None:
    assert _list_levels(database) == []  # none is configured
    settings = {"time_stamps": authority.url}
    with database.transaction() as tx:
        change_log.append_entry(tx, events.SettingsChanged(settings=settings, digest=""))
    assert _list_levels(database) == ["error"]
    stamper = TimeStamper(database, authority)
    stamper.stamp_when_due()
    assert _list_levels(database) == ["ok"]
    with database.transaction() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="later"))
    assert _list_levels(database) == ["ok"]
    with database.engine.connect() as connection:
        connection.exec_driver_sql("UPDATE time_stamp SET at = at - ?", (2 * HOUR,))
        connection.commit()
    assert _list_levels(database) == ["ok"], "the first entry after a quiet time is new"
    with database.engine.connect() as connection:
        connection.exec_driver_sql("UPDATE entry SET at = at - ?", (HOUR,))
        connection.commit()
    assert _list_levels(database) == ["error"]
    stamper.stamp_when_due()
    assert _list_levels(database) == ["ok"]


def test_stamp_of_another_authority_is_refused(
    tmp_path: Path, database: Database, authority: TimeStampAuthority
) -> None:
    other = Openssl(tmp_path / "other")
    stamper = TimeStamper(database, TimeStampAuthority(authority.url, other.certificates))
    stamper.stamp_when_due()
    assert stamper.problem.startswith(f"no valid stamp from {authority.url}")
    with database.reading() as tx:
        assert cosignatures.get_newest_time_stamp(tx) is None


def test_authority_that_does_not_answer_is_named(database: Database, openssl: Openssl) -> None:
    authority = TimeStampAuthority("http://127.0.0.1:9/", openssl.certificates)
    with pytest.raises(TimeStampError, match="does not answer"):
        authority.stamp(b"x")
    stamper = TimeStamper(database, authority)
    stamper.stamp_when_due()
    assert "does not answer" in stamper.problem


def test_error_of_the_authority_is_named(
    authority: TimeStampAuthority, openssl: Openssl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openssl, "status", 503)
    with pytest.raises(TimeStampError, match="returned status 503"):
        authority.stamp(b"x")
