"""The mail queue's check and a real Exim with a spool of its own, over a real sshd."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.ssh_pool import SshPool
from runbooks.mail_queue_check import MailQueueCheck
from tests.playground.daemon import program
from tests.playground.sshd import Sshd

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="Exim takes a configuration from root alone"),
]

EXIM = "/usr/sbin/exim4"
CHECK = MailQueueCheck.model_validate({"host": "mail1"})
_CONFIGURATION = """
spool_directory = {0}/spool
log_file_path = {0}/log/%slog
primary_hostname = mail1.example.com
queue_only = true
keep_environment =
"""


class Exim:
    """An Exim that only queues. Its account must be able to reach the spool."""

    def __init__(self, directory: Path) -> None:
        self.command = directory / "exim"
        configuration = directory / "configuration"
        configuration.write_text(_CONFIGURATION.format(directory))
        exim = program(EXIM, package="exim4-daemon-light")
        self.command.write_text(f'#!/bin/sh\nexec {exim} -C {configuration} "$@"\n')
        self.command.chmod(0o755)
        for name in ("spool", "log"):
            (directory / name).mkdir()
            shutil.chown(directory / name, "Debian-exim", "Debian-exim")

    def queue(self, sender: str, *recipients: str, header: str = "Subject: hello") -> None:
        words = [str(self.command), "-odq", "-f", sender, *recipients]
        subprocess.run(words, input=f"{header}\n\nhello\n".encode(), check=True, timeout=30)


@pytest.fixture
def exim() -> Iterator[Exim]:
    directory = Path(tempfile.mkdtemp(prefix="kt-exim-", dir="/tmp"))
    directory.chmod(0o755)
    try:
        yield Exim(directory)
    finally:
        shutil.rmtree(directory)


@pytest.fixture
def fleet(sshd: Sshd, exim: Exim) -> Iterator[Fleet]:
    entry = sshd.inventory_entry(area="mail", settings={"exim.program": str(exim.command)})
    fleet = Fleet(Inventory.model_validate({"hosts": {"mail1": entry}}), SshPool(Path("/")))
    yield fleet
    fleet.close()


def test_what_waits_is_told_by_sender_and_by_script(fleet: Fleet, exim: Exim):
    script = "X-PHP-Originating-Script: 1001:mailer.php"
    exim.queue("shop@example.com", "a@example.net", "b@example.net", header=script)
    exim.queue("<>", "c@example.net")
    report = CHECK.report(CHECK.read(fleet.run_query))
    assert report.summary.startswith("2 messages wait on mail1")
    assert report.table is not None
    assert {tuple(row) for row in report.table.rows} == {
        ("<> (bounces)", "1", "1"),
        ("script 1001:mailer.php", "1", "-"),
        ("shop@example.com", "1", "2"),
    }


def test_an_empty_queue_is_said_to_be(fleet: Fleet, exim: Exim):
    exim.queue("a@example.com", "b@example.net")
    (message,) = CHECK.read(fleet.run_query).messages
    subprocess.run([exim.command, "-Mrm", message.id], check=True, capture_output=True)
    assert CHECK.report(CHECK.read(fleet.run_query)).summary == "the mail queue of mail1 is empty"
