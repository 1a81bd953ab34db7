"""Nothing but people's signatures changes an enrolled host, and each protection is needed."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from connectors.run_signed import SignedTexts, frame_input, parse_history
from tests.bot.signing.ssh_key import SshKey
from tests.guarantee.campaign import (
    CHAOS,
    Broken,
    changes_without_protection,
    select_ways,
    try_ways,
)
from tests.guarantee.signed_host import DAY, Outcome, SignedHost, Step
from tests.guarantee.ways import TWINS, Twin, list_ways

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may run the program of a host"),
]
_ALL = list_ways()
_KINDS = sorted({way.kind for way in _ALL})
_SHELLS = ("dash", "bash", "busybox ash")
_TRIED = select_ways(_ALL, TWINS)


@pytest.fixture(scope="module", params=_SHELLS if CHAOS else _SHELLS[:1])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SignedHost:
    return SignedHost(tmp_path_factory.mktemp("host"), str(request.param).split())


@pytest.fixture(params=_SHELLS)
def host_of_each_shell(request: pytest.FixtureRequest, tmp_path: Path) -> SignedHost:
    return SignedHost(tmp_path, str(request.param).split())


def test_at_least_two_hundred_ways_are_tried():
    assert len(_ALL) >= 200


@pytest.mark.parametrize("kind", _KINDS)
def test_no_way_changes_a_host_without_signatures(host: SignedHost, kind: str):
    ways = [way for way in _TRIED if way.kind == kind]
    assert [one for one in try_ways(host, ways) if isinstance(one, Broken)] == []


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.protection)
def test_without_a_protection_a_way_changes_the_host(host: SignedHost, twin: Twin):
    is_needed = twin.unneeded_in != host.shell[0]
    assert changes_without_protection(host, twin) is is_needed


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
    assert _report(host, document, section) == ["do 0", "undo never"]
    undone = host.run(document, section, signatures, action="undo", step=2)
    assert (undone.status, _report(host, document, section, 2)) == (0, ["do 0", "undo 0"])
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


def test_input_without_its_last_line_end_does_not_hide_the_next_step(
    host_of_each_shell: SignedHost,
):
    host = host_of_each_shell
    section = host.make_section()
    for _ in range(2):
        document = host.make_document(section, run="0")
        framed = frame_input("do", 1, document, section, host.sign(document))
        assert host.send(framed.removesuffix("\n").encode()).status == 0
    odd = host.record / f"{'e' * 32}-{'0' * 64}" / "1-do"
    odd.mkdir(parents=True)
    (odd / "input").write_text("a do 1\nd run 0\n")
    history = parse_history(host.send(b"a history 7\n").out.decode())
    assert [step.status for step in history] == [0, 0]
    (row,) = history.odd
    assert "/1-do never unknown" in row.text


def _report(host: SignedHost, document: str, section: str, step: int = 1) -> Sequence[str]:
    """Return what the record says of a step, which needs no signatures."""
    done = host.run(document, section, [], action="report", step=step)
    assert (done.status, done.error) == (0, "")
    return done.out.decode().splitlines()[:2]


def test_step_that_is_sent_again_answers_the_same_and_is_not_run_again(
    host_of_each_shell: SignedHost,
):
    host = host_of_each_shell
    code = f"echo changed >>{host.changed}; echo out; printf 'no end' >&2; exit 3; \\n \\c"
    section = host.make_section(Step(("sh", "-c", code)))
    document = host.make_document(section)
    signatures = host.sign(document)
    answers = [host.run(document, section, signatures) for _ in range(3)]
    assert answers == [Outcome(3, b"out\n", "no end")] * 3
    assert host.changes == 1
    (logged,) = (host.record / "log").read_text().splitlines()
    assert logged.endswith(f"run 7, do 1, signed by dora olga: sh -c {code}")
    done = host.run(document, section, [], action="report")
    lines = done.out.decode().splitlines()
    assert (lines[:2], lines[-2:]) == (["do 3", "undo never"], ["out out", "err no end"])
    begun, ended, whole = (int(line.split()[1]) for line in lines[2:5])
    assert begun <= ended <= whole <= time.time() + 1


def test_record_tells_a_step_that_runs_from_one_that_was_killed(host_of_each_shell: SignedHost):
    host = host_of_each_shell
    os.mkfifo(host.root / "gate")
    section = host.make_section(Step(("cat", str(host.root / "gate"))))
    document = host.make_document(section)
    sent = frame_input("do", 1, document, section, host.sign(document))
    assert _report(host, document, section) == ["do never", "undo never"]
    process = host.start()
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdin.write(sent.encode())
    process.stdin.close()
    with (host.root / "gate").open("w"):  # it opens once the step reads
        assert _report(host, document, section) == ["do running", "undo never"]
        again = host.send(sent.encode())
        assert (again.status, again.out) == (65, b"")
        process.kill()
        process.wait()
        # What it started goes on.
        assert _report(host, document, section) == ["do running", "undo never"]
    process.stdout.close()
    process.stderr.close()
    while (lines := _report(host, document, section))[0] == "do running":
        time.sleep(0.02)
    assert lines == ["do 0", "undo never"]
    next(host.record.glob("*/1-do/end")).unlink()  # as if the host had lost power
    assert _report(host, document, section) == ["do unknown", "undo never"]
    assert host.send(sent.encode()).status == 65


def test_step_goes_on_without_a_reader(host: SignedHost):
    """The connection may end before the step does."""
    host.reset()
    code = f"seq 100000; seq 100000 >&2; echo changed >>{host.changed}"
    section = host.make_section(Step(("sh", "-c", code)))
    document = host.make_document(section)
    process = host.start()
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    process.stderr.close()
    process.stdin.write(frame_input("do", 1, document, section, host.sign(document)).encode())
    process.stdin.close()
    process.wait(60)
    assert _report(host, document, section) == ["do 0", "undo never"]
    assert host.changes == 1
    record = next(host.record.glob("*-*/1-do"))
    assert {name: (record / name).stat().st_size for name in ("out", "err")} == {
        "out": 588_895,
        "err": 588_895,
    }


def test_step_is_given_up_only_by_signatures_and_only_before_it_began(host: SignedHost):
    host.reset()
    section = host.make_section(host.make_step(), host.make_step("second"))
    document = host.make_document(section)
    signatures = host.sign(document)
    assert host.run(document, section, [], action="close").status == 64
    assert host.run(document, section, signatures[:1], action="close").status == 64
    assert host.run(document, section, signatures).status == 0
    ended = host.run(document, section, signatures, action="close")
    assert ended.out.decode().splitlines()[:2] == ["do 0", "undo never"]
    closed = host.run(document, section, signatures, action="close", step=2)
    assert closed.out.decode().splitlines()[:2] == ["do closed", "undo never"]
    refused = host.run(document, section, signatures, step=2)
    assert (refused.status, refused.error) == (
        64,
        "not run: step 2 was given up before it began\n",
    )
    assert host.changes == 1


def test_record_of_a_plan_that_expired_says_that_a_step_never_will_begin(host: SignedHost):
    host.reset()
    section = host.make_section()
    document = host.make_document(section, expires=str(int(time.time()) - 1))
    assert _report(host, document, section) == ["do expired", "undo never"]


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


def test_host_stops_a_step_at_its_deadline(host_of_each_shell: SignedHost):
    """Also when no one waits for it any more: the login could not stop what root runs."""
    host = host_of_each_shell
    code = f"echo begun; sleep 60 & wait; echo changed >>{host.changed}"
    stubborn = f"trap '' TERM; {code}"
    for action, words in (("do", ("sh", "-c", code)), ("undo", ("sh", "-c", stubborn))):
        done = Step(words) if action == "do" else Step(("true",), undo=words)
        section = host.make_section(done).replace("deadline 10", "deadline 1")
        document = host.make_document(section)
        signatures = host.sign(document)
        if action == "undo":
            assert host.run(document, section, signatures).status == 0
        began = time.monotonic()
        stopped = host.run(document, section, signatures, action=action)
        assert (stopped.status in {124, 137}, stopped.out) == (True, b"begun\n"), stopped
        assert time.monotonic() - began < 10
        assert host.changes == 0
        told = _report(host, document, section)
        assert told[0 if action == "do" else 1] == f"{action} {stopped.status}"


def test_step_without_a_deadline_runs_to_its_end_and_an_odd_one_is_refused(host: SignedHost):
    host.reset()
    for line, status in (("", 0), ("deadline 0\n", 0), ("deadline x\n", 64), ("deadline\n", 0)):
        section = host.make_section().replace("\ndeadline 10\n", f"\n{line}")
        document = host.make_document(section)
        assert host.run(document, section, host.sign(document)).status == status, line


def test_host_key_that_changed_is_noticed_at_once(host_of_each_shell: SignedHost):
    """The fingerprints are kept, with the keys that they are of."""
    host = host_of_each_shell
    section = host.make_section()
    before = host.root / "etc/ssh/ssh_host_ed25519_key.pub"
    after = SshKey.create(host.root, name="other")
    for fingerprint, key in (
        (host.fingerprint, before.read_text()),
        (after.fingerprint, after.line),
        (host.fingerprint, before.read_text()),
    ):
        before.write_text(f"{key.strip()}\n")
        for named, status in ((host.fingerprint, 0), (after.fingerprint, 0)):
            document = host.make_document(section)
            document = document.replace(host.fingerprint, named)
            done = host.run(document, section, host.sign(document))
            assert done.status == (status if named == fingerprint else 64), done
    assert len((host.record / "keys").read_text().splitlines()) == 2


def test_floor_names_commands_that_run_unsigned_word_by_word(host_of_each_shell: SignedHost):
    host = host_of_each_shell
    touch = ("touch", str(host.changed))
    for lines, words, sent, status in (
        (("unsigned {}",), touch, "", 0),
        (("unsigned {}",), (*touch, "/x"), "", 64),
        (("unsigned {}",), touch[:1], "", 64),
        (("unsigned {} /x",), touch, "", 64),
        (("unsigned {}",), (" ".join(touch),), "", 64),
        (("unsigned",), touch, "", 64),
        # Whatever it reads could have it do something else.
        (("unsigned {}",), touch, "input", 64),
        # A stricter line holds.
        (("unsigned {}", "signed 1 any {}"), touch, "", 64),
        (("unsigned {}", "signed 1 any touch"), touch, "", 0),
        (("unsigned {}", "never touch"), touch, "", 64),
        # Signers and floor are changed by signed plans only.
        (("unsigned touch /etc/keyturn/floor",), ("touch", "/etc/keyturn/floor"), "", 64),
    ):
        host.reset()
        host.write_floor(*(line.format(" ".join(touch)) for line in lines))
        section = host.make_section(Step(words, sent))
        done = host.run(host.make_document(section), section, [])
        assert (done.status, host.changed.exists()) == (status, status == 0), (lines, words, done)
        assert bool(done.error) == bool(status), done
    assert "it needs the signatures of 2 people, and has those of no one" in done.error


def test_step_that_fails_is_recorded_with_its_status(host: SignedHost):
    host.reset()
    section = host.make_section(host.make_step(), type(host.make_step())(("sh", "-c", "exit 3")))
    document = host.make_document(section)
    signatures = host.sign(document)
    assert host.run(document, section, signatures).status == 0
    assert host.run(document, section, signatures, step=2).status == 3
    assert _report(host, document, section, 2) == ["do 3", "undo never"]


def test_plans_that_expired_a_month_ago_are_forgotten_but_remembered_as_a_time(host: SignedHost):
    host.reset()
    section = host.make_section()
    old = host.record / f"{'0' * 32}-{'0' * 64}"
    old.mkdir()
    (old / "ends").write_text("1000\n")
    os.utime(old / "ends", (1000, 1000))
    for nonce in ("1" * 32, "0" * 32):  # one plan of sixteen has the host look
        assert old.exists()
        document = host.make_document(section, nonce=nonce)
        assert host.run(document, section, host.sign(document)).status == 0
    assert not old.exists()
    since, forgotten = map(int, (host.record / "since").read_text().split())
    assert abs(since - (time.time() - DAY)) < 60
    assert abs(forgotten - (time.time() - 30 * DAY)) < 60
    assert len(list(host.record.glob("*-*"))) == 2
