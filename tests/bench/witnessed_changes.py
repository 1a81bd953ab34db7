"""Witnesses before the act: how much later a change ends that waits for a cosignature."""

import re
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from bot.audit import change_log, verification
from bot.db import cosignatures
from bot.db.database import Database
from bot.model import signing
from tests.bench.farm import Farm
from tests.bench.measurements import Figure, Part, set_maximum, table
from tests.bench.served_keyturn import ServedKeyturn
from tests.bot.features.witness.witness_process import WitnessProcess
from tests.empty_database import create_empty_database

_WARM_UP = 3
# Of a change: what follows its first step.
_ENTRIES_AFTER_INTENT = 3


def measure(rounds: int) -> Part:
    """Change a host so often with a witness on this machine and without one, in turn."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        farm = stack.enter_context(Farm(_make(place / "farm"), 1))
        plain = stack.enter_context(ServedKeyturn(farm, _make(place / "plain")))
        _require_witness(farm.policy / "policy.cedar")
        witness = stack.enter_context(_run_witness(place, _make(place / "witnessed")))
        witnessed = stack.enter_context(
            ServedKeyturn(
                farm,
                place / "witnessed",
                witnesses=f"{witness.address.key.text} {witness.address.url}",
            )
        )
        took = [
            (plain.change(1) * 1000, witnessed.change(1) * 1000) for _ in range(_WARM_UP + rounds)
        ][_WARM_UP:]
        _check_cosigned(witnessed)
    more = median(witnessed - plain for plain, witnessed in took)
    without = median(plain for plain, _ in took)
    figures = [
        Figure("an approved change without witnesses, p50", without, "ms", None, "", None),
        set_maximum(5, "a witness before the first step: more, p50", more, "ms"),
    ]
    return Part(table(figures), figures[1:])


def _make(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _require_witness(rules: Path) -> None:
    text, found = re.subn(
        r'^@approvals\("1"\)', '@witnessed("1")\n@approvals("1")', rules.read_text(), flags=re.M
    )
    assert found
    rules.write_text(text)


@contextmanager
def _run_witness(place: Path, directory: Path) -> Generator[WitnessProcess]:
    """Begin the log that a service in this directory goes on with, and a witness of it."""
    data = directory / "var"
    data.mkdir(mode=0o700)
    create_empty_database(data / "keyturn.db")
    key = signing.create_signing_key(data / "changelog.key")
    database = Database(f"sqlite:///{data / 'keyturn.db'}", key)
    with database.transaction() as tx:
        verification.open_log(tx)
    witness = WitnessProcess(place, database)
    database.close()
    try:
        yield witness
    finally:
        witness.stop()


def _check_cosigned(keyturn: ServedKeyturn) -> None:
    """Fail unless the witness has cosigned what was measured. A duty stores it after seconds."""
    end = time.monotonic() + 30
    with keyturn.service.keyturn.database.reading() as tx:
        changed = change_log.get_head(tx)[0] - _ENTRIES_AFTER_INTENT
    cosigned = 0
    while cosigned < changed:
        assert time.monotonic() < end, (cosigned, changed)
        time.sleep(0.1)
        with keyturn.service.keyturn.database.reading() as tx:
            cosigned = cosignatures.get_newest_size(tx)
