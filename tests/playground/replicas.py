"""Processes of the distributed mode, as `keyturn serve` and `keyturn worker` start them."""

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self, TextIO

from bot.app import Foundation, NoHostConnector, build_foundation
from bot.auth import secret_box
from bot.db import migrations
from bot.db.database import Database
from bot.execution.procrastinate_dispatch import ProcrastinateDispatcher
from bot.model import signing
from bot.model.redaction import Redactor
from bot.settings import Settings
from tests.cli_process import Running, begin


class Replicas:
    """Any number of them on one database. directory: holds the policy in `policy`."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory, self._url = directory, url
        self._stack = ExitStack()

    @property
    def settings(self) -> Settings:
        return Settings(
            data=self.directory / "var",
            policy=self.directory / "policy",
            database=self._url,
            engine="distributed",
            port=0,
        )

    def __enter__(self) -> Self:
        data = self.directory / "var"
        data.mkdir(parents=True, exist_ok=True)
        database = Database(self._url, signing.load_signing_key(data / "changelog.key"))
        secret_box.load_secret_box(data / "secrets.key")
        migrations.upgrade_schema(database)
        database.close()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def foundation(self) -> Foundation:
        """Return what a replica of `keyturn serve` stands on, in this very process."""
        foundation = build_foundation(
            self.settings,
            ProcrastinateDispatcher(),
            Redactor(),
            connector=NoHostConnector(),
            file_suffix="-here",
        )
        foundation.housekeeping.start({})
        return foundation

    def workers(self, number: int, *, site: str = "main") -> list[Running]:
        """Start so many workers at once, and return them once they work."""
        return self._start(number, "worker", "--site", site, until="Working for")

    def serving(self, number: int) -> list[Running]:
        """Do the same with `keyturn serve`."""
        return self._start(number, "serve", until="Keyturn is ready")

    def _start(self, number: int, *words: str, until: str) -> list[Running]:
        environment = {
            "KEYTURN_DATA": str(self.settings.data),
            "KEYTURN_POLICY": str(self.settings.policy),
            "KEYTURN_DATABASE": self._url,
            "KEYTURN_ENGINE": "distributed",
            "KEYTURN_PORT": "0",
        }
        started = [self._begin(words, os.environ | environment) for _ in range(number)]
        for _, output in started:
            line = output.readline()
            assert until in line, line
        return [process for process, _ in started]

    def _begin(self, words: Sequence[str], env: Mapping[str, str]) -> tuple[Running, TextIO]:
        """Return a process and what it writes, which nobody may close before it ends."""
        reading, writing = os.pipe()
        output = self._stack.enter_context(os.fdopen(reading))
        with Path(os.devnull).open("r+") as nothing, os.fdopen(writing, "w") as written:
            streams = (nothing.fileno(), written.fileno(), nothing.fileno())
            process = begin(words, streams, env=env)
        self._stack.callback(process.wait)
        # One that was stopped takes no other signal.
        self._stack.callback(process.kill)
        return process, output


def end(process: Running) -> int:
    """Ask a process to end, as an orchestrator does, and return its exit status."""
    process.send_signal(signal.SIGTERM)
    return process.wait()
