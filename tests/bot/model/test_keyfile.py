"""Key files: whole or not there at all."""

import errno
import os
from pathlib import Path

import pytest

from bot.model import keyfile, signing


def _full(_descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_key_that_could_not_be_written_is_made_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Half a key would be one that somebody has to take away before anything begins."""
    file = tmp_path / "changelog.key"
    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", _full)
        with pytest.raises(OSError, match="No space left"):
            signing.load_signing_key(file)
    assert list(tmp_path.iterdir()) == []
    assert signing.load_signing_key(file).public_key == signing.load_signing_key(file).public_key
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


def test_of_two_that_make_a_key_at_once_both_have_the_same(tmp_path: Path):
    file = tmp_path / "key"

    def make() -> bytes:
        """Another process is quicker."""
        keyfile.load_or_create_key(file, lambda: b"theirs")
        return b"ours"

    assert keyfile.load_or_create_key(file, make) == b"theirs"


def test_a_key_that_is_there_is_read_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As a secret that an orchestrator lays into the file system is."""
    file = tmp_path / "key"
    keyfile.load_or_create_key(file, lambda: b"ours")
    monkeypatch.setattr(os, "fsync", _full)
    assert keyfile.load_or_create_key(file, lambda: b"another") == b"ours"
