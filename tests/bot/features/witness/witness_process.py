"""`keyturn witness` as a process of its own, on a port of this machine."""

import subprocess
import sys
from pathlib import Path

from bot.audit import verification
from bot.db.database import Database
from bot.model.verifier_keys import WitnessAddress, parse_witnesses


class WitnessProcess:
    """A witness that cosigns the log of a database; it can be ended and started again."""

    def __init__(self, directory: Path, database: Database, *, name: str = "w1.example") -> None:
        with database.reading() as tx:
            key = verification.get_verifier_key(tx)
        assert key is not None
        self._words = [str(directory / f"{name}.db"), "--name", name, "--log", key.text]
        self._port = 0
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "bot", "witness", *self._words, "--port", str(self._port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        [self.address] = parse_witnesses(line.removeprefix("KEYTURN_WITNESSES=").strip())
        self._port = int(self.address.url.rpartition(":")[2])

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def list_addresses(*processes: WitnessProcess) -> list[WitnessAddress]:
    return [one.address for one in processes]
