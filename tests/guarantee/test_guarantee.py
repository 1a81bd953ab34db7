"""Nothing but people's signatures changes an enrolled host, and each protection is needed."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from connectors.run_signed import SignedTexts, parse_history
from tests.guarantee.campaign import Broken, changes_without_protection, try_ways
from tests.guarantee.signed_host import DAY, SignedHost, Step
from tests.guarantee.ways import TWINS, Twin, list_ways

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may run the program of a host"),
]
_ALL = list_ways()
_KINDS = sorted({way.kind for way in _ALL})
_SHELLS = ("dash", "bash", "busybox ash")
# `make chaos` tries every way in every shell.
_TRIED = _SHELLS if os.environ.get("KEYTURN_CHAOS") else _SHELLS[:1]


@pytest.fixture(scope="module", params=_TRIED)
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SignedHost:
    return SignedHost(tmp_path_factory.mktemp("host"), str(request.param).split())


@pytest.fixture(params=_SHELLS)
def host_of_each_shell(request: pytest.FixtureRequest, tmp_path: Path) -> SignedHost:
    return SignedHost(tmp_path, str(request.param).split())


def test_at_least_two_hundred_ways_are_tried():
    assert len(_ALL) >= 200


@pytest.mark.parametrize("kind", _KINDS)
def test_no_way_changes_a_host_without_signatures(host: SignedHost, kind: str):
    ways = [way for way in _ALL if way.kind == kind]
    assert [one for one in try_ways(host, ways) if isinstance(one, Broken)] == []


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.protection)
def test_without_a_protection_a_way_changes_the_host(host: SignedHost, twin: Twin):
    assert changes_without_protection(host, twin)


def test_signed_plan_runs_step_by_step_in_each_shell(host_of_each_shell: SignedHost):
    host = host_of_each_shell
    steps = [host.make_step('it\'s $HOME; `id` * \\ "x"'), host.make_step("  two\n\nlines")]
    section = host.make_section(*steps)
    document = host.make_document(section)
    signatures = [*host.sign(document, "dora"), host.sign_with_passkey(document)]
    for n in (1, 2):
        done = host.run(document, section, signatures, step=n)
        assert (done.status, done.error) == (0, "")
        assert done.out.decode() == steps[n - 1].stdin
    assert host.changed.read_text() == steps[0].stdin + steps[1].stdin
    assert _report(host, document, section, signatures) == ["do 0", "undo never"]
    undone = host.run(document, section, signatures, action="undo", step=2)
    assert (undone.status, _report(host, document, section, signatures, 2)) == (
        0,
        ["do 0", "undo 0"],
    )
    log = (host.record / "log").read_text()
    assert "run 7, do 1, signed by dora stan: tee -a" in log
    assert [*host.record.glob("in.*")] == []


def test_host_tells_what_people_ran_without_keyturn(host_of_each_shell: SignedHost):
    host = host_of_each_shell
    section = host.make_section(host.make_step("  one"), Step(("sh", "-c", "exit 3")))
    own, service = (host.make_document(section, run=number) for number in ("0", "7"))
    for document in (own, service):
        host.run(document, section, host.sign(document))
    host.run(own, section, host.sign(own, "olga", "dora"), step=2)
    told = host.send(b"a history 7\n")
    assert (told.status, told.error) == (0, "")
    steps = parse_history(told.out.decode())
    assert [(one.number, one.action, one.status) for one in steps] == [(1, "do", 0), (2, "do", 3)]
    assert steps[0].texts == SignedTexts(own, section, tuple(host.sign(own)))
    assert steps[1].texts.signatures == tuple(host.sign(own, "olga", "dora"))
    assert all(abs(one.began_at - time.time()) < 60 for one in steps)
    for sent in (b"a history 0\n", b"a history\n", b"a history 7\nx y\n"):
        assert host.send(sent).status == 64, sent
    assert host.changes == 2


def _report(
    host: SignedHost, document: str, section: str, signatures: Sequence[str], step: int = 1
) -> Sequence[str]:
    done = host.run(document, section, signatures, action="report", step=step)
    assert done.status == 0
    return done.out.decode().splitlines()


def test_floor_lowers_and_raises_who_has_to_sign(host: SignedHost):
    section = host.make_section()
    for lines, people, status in (
        (("signed 0 any tee",), (), 0),
        (("signed 0 any tee -a",), (), 0),
        (("signed 0 any tee -b",), (), 64),
        (("signed 1 any tee",), ("dora",), 0),
        (("signed 1 owners tee",), ("dora",), 64),
        (("signed 1 owners tee",), ("olga",), 0),
        (("signed 1 any tee", "signed 3 any tee -a"), ("dora", "olga"), 64),
    ):
        host.reset()
        host.write_floor(*lines)
        document = host.make_document(section)
        signatures = host.sign(document, *people) if people else []
        assert host.run(document, section, signatures).status == status, lines


def test_step_that_fails_is_recorded_with_its_status(host: SignedHost):
    host.reset()
    section = host.make_section(host.make_step(), type(host.make_step())(("sh", "-c", "exit 3")))
    document = host.make_document(section)
    signatures = host.sign(document)
    assert host.run(document, section, signatures).status == 0
    assert host.run(document, section, signatures, step=2).status == 3
    assert _report(host, document, section, signatures, 2) == ["do 3", "undo never"]


def test_plans_that_expired_a_month_ago_are_forgotten_but_remembered_as_a_time(host: SignedHost):
    host.reset()
    section = host.make_section()
    old = host.record / f"{'0' * 32}-{'0' * 64}"
    old.mkdir()
    (old / "ends").write_text("1000\n")
    os.utime(old / "ends", (1000, 1000))
    document = host.make_document(section)
    assert host.run(document, section, host.sign(document)).status == 0
    assert not old.exists()
    assert abs(int((host.record / "forgotten").read_text()) - (time.time() - 30 * DAY)) < 60
    assert len(list(host.record.glob("*-*"))) == 1
