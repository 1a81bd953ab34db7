"""The script that replaces signers and floor of an enrolled host."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from connectors import signed_files
from connectors.signed_files import SCRIPT, SignedFiles
from tests.playground.keys import make_key

KEYS = {name: make_key().public for name in ("dan", "dora", "olga")}
FLOOR = "floor 1\nhost lb1\ngroup owners olga\nsigned 2 any\nsigned 1 owners\n"
BEFORE = SignedFiles(
    signed_files.format_signers((name, KEYS[name]) for name in ("dan", "olga")), FLOOR
)
AFTER = SignedFiles(
    signed_files.format_signers((name, KEYS[name]) for name in ("dora", "olga")),
    FLOOR.replace("signed 1 owners", "verify-user\nsigned 1 owners"),
)

pytestmark = pytest.mark.real


def _write(
    place: Path, files: SignedFiles, shell: Sequence[str] = ("sh",)
) -> "subprocess.CompletedProcess[str]":
    """Run the script on a host whose directory is below *place*."""
    etc = place / "etc/keyturn"
    etc.mkdir(parents=True)
    (etc / "signers").write_text(BEFORE.signers)
    (etc / "floor").write_text(BEFORE.floor)
    text = SCRIPT.file_text.replace("=/etc/keyturn/", f"={place}/etc/keyturn/")
    (place / "script").write_text(text)
    return subprocess.run(
        [*shell, place / "script"],
        input=signed_files.write_files(files).stdin,
        capture_output=True,
        text=True,
        check=False,
    )


def _read(place: Path) -> SignedFiles:
    etc = place / "etc/keyturn"
    assert sorted(file.name for file in etc.iterdir()) == ["floor", "signers"]
    assert {file.stat().st_mode & 0o777 for file in etc.iterdir()} == {0o644}
    return SignedFiles((etc / "signers").read_text(), (etc / "floor").read_text())


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox ash"])
def test_both_files_are_replaced(tmp_path: Path, shell: str):
    done = _write(tmp_path, AFTER, shell.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert _read(tmp_path) == AFTER


@pytest.mark.parametrize(
    ("signers", "floor", "why"),
    [
        (AFTER.signers.splitlines()[1] + "\n", FLOOR, "it needs the signatures of 2 people"),
        (AFTER.signers, FLOOR.replace("owners olga", "owners dan"), "1 of the group owners"),
        (AFTER.signers, f"{FLOOR}signed 3 any rm\n", "it needs the signatures of 3 people"),
        (AFTER.signers, f"{FLOOR}quorum rm\n", "does not know: quorum"),
        (AFTER.signers, FLOOR.replace("lb1", "lb2"), "the new floor is for the host lb2"),
        (AFTER.signers.replace("dora ", "dora,eve "), FLOOR, "no key of one person"),
        (f"{AFTER.signers}eve {KEYS['dora']}\n", FLOOR, "no key of one person"),
        (f'{AFTER.signers}eve namespaces="keyturn-plan" {KEYS["dora"]}\n', FLOOR, "no key of one"),
        ("", FLOOR, "are not complete"),
        (AFTER.signers, "", "are not complete"),
    ],
)
def test_files_that_lock_out_or_are_not_understood_replace_nothing(
    tmp_path: Path, signers: str, floor: str, why: str
):
    done = _write(tmp_path, SignedFiles(signers, floor))
    assert done.returncode == 1
    assert why in done.stderr
    assert _read(tmp_path) == BEFORE
