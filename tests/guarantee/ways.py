"""The ways in which whoever owns Keyturn tries to change a host without people's signatures."""

import base64
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from connectors.run_signed import frame_input
from tests.guarantee.signed_host import DAY, PAGE, TOUCHED, SignedHost, Step, armour

# Positions in a text, in hundredths of its length.
_PLACES = range(2, 100, 6)


@dataclass(frozen=True)
class Way:
    """One attempt. It may legitimately change the host `allowed` times, and never more often."""

    name: str
    kind: str
    attempt: Callable[[SignedHost], object]
    allowed: int = 0


@dataclass(frozen=True)
class Twin:
    """A way that changes the host once a protection is taken out of the program."""

    protection: str
    way: str
    replaced: Mapping[str, str]
    unneeded_in: str = ""
    """The shell whose programs let nothing through without it either."""


def list_ways() -> list[Way]:
    """Return every way, each with a name of its own."""
    ways = [
        *_alter_bytes(),
        *_cut_short(),
        *_sign_otherwise(),
        *_use_devices_otherwise(),
        *_send_otherwise(),
        *_run_again(),
        *_use_other_plans(),
        *_weaken_files(),
        *_use_environment(),
        *_use_other_words(),
    ]
    assert len({way.name for way in ways}) == len(ways)
    return ways


def _flip(text: str, hundredth: int) -> str:
    at = len(text) * hundredth // 100
    return text[:at] + chr(ord(text[at]) ^ 1) + text[at + 1 :]


def _alter_bytes() -> Iterator[Way]:
    def alter(which: str, place: int) -> Callable[[SignedHost], object]:
        def attempt(host: SignedHost) -> None:
            section = host.make_section()
            document = host.make_document(section)
            signatures = host.sign(document)
            if which == "document":
                document = _flip(document, place)
            elif which == "section":
                section = _flip(section, place)
            else:
                signatures[0] = _flip(signatures[0], place)
            host.run(document, section, signatures)

        return attempt

    for which in ("document", "section", "signature"):
        for place in _PLACES:
            yield Way(f"one bit of the {which} at {place} %", "altered", alter(which, place))


def _cut_short() -> Iterator[Way]:
    def cut(place: int) -> Callable[[SignedHost], object]:
        def attempt(host: SignedHost) -> None:
            section = host.make_section(host.make_step(), host.make_step("second"))
            document = host.make_document(section)
            sent = frame_input("do", 1, document, section, host.sign(document)).encode()
            host.send(sent[: len(sent) * place // 100])

        return attempt

    for place in (0, 1, 5, *range(10, 100, 10), 95, 97):
        yield Way(f"the first {place} % of the input", "cut short", cut(place))


def _use_signatures(
    sign: Callable[[SignedHost, str], list[str]],
) -> Callable[[SignedHost], object]:
    def attempt(host: SignedHost) -> None:
        section = host.make_section()
        document = host.make_document(section)
        host.run(document, section, sign(host, document))

    return attempt


def _sign_other_namespace(host: SignedHost, document: str) -> list[str]:
    text = document.encode()
    return [host.keys["dora"].sign(text, "file"), host.keys["olga"].sign(text, "file")]


def _sign_bare(host: SignedHost, document: str) -> list[str]:
    return [host.keys["dora"].sign(b"") for _ in host.keys]


def _sign_of_section(host: SignedHost, document: str) -> list[str]:
    return host.sign(host.make_section())


def _sign_of_another_plan(host: SignedHost, document: str) -> list[str]:
    return host.sign(document.replace("run 7", "run 8"))


def _sign_stretched(host: SignedHost, document: str) -> list[str]:
    blob = base64.b64decode("".join(host.sign(document, "olga")[0].split("\n")[1:-2]))
    return [*host.sign(document, "olga"), armour(blob + b"\0")]


def _claim_length(signature: str) -> str:
    """Let a part of a signature say that it has four thousand million bytes."""
    blob = base64.b64decode("".join(signature.split("\n")[1:-2]))
    at = blob.rindex(b"\0\0\0\x0bssh-ed25519")
    return armour(blob[:at] + b"\xff" * 4 + blob[at + 4 :])


def _use_key_expired(host: SignedHost) -> None:
    host.write_signers(olga=',valid-before="20200101"')
    _use_signatures(lambda host, document: host.sign(document))(host)


def _use_key_not_yet(host: SignedHost) -> None:
    host.write_signers(olga=',valid-after="20990101"')
    _use_signatures(lambda host, document: host.sign(document))(host)


def _use_key_removed(host: SignedHost) -> None:
    host.signers.write_text("".join(host.signers.read_text().splitlines(keepends=True)[:1]))
    _use_signatures(lambda host, document: host.sign(document))(host)


def _use_key_doubled(host: SignedHost) -> None:
    line = host.signers.read_text().splitlines()[1]
    host.signers.write_text(f"{line}\n{line.replace('olga', 'dora')}\n")
    _use_signatures(lambda host, document: host.sign(document, "olga", "olga"))(host)


def _sign_otherwise() -> Iterator[Way]:
    kinds: Mapping[str, Callable[[SignedHost, str], list[str]]] = {
        "nobody signed": lambda _host, _document: [],
        "one person signed": lambda host, document: host.sign(document, "olga"),
        "one person signed twice": lambda host, document: host.sign(document, "olga", "olga"),
        "one person signed sixteen times": lambda host, document: host.sign(
            document, *["olga"] * 16
        ),
        "two signed, no owner among them": lambda host, document: host.sign(
            document, "dora", "dora"
        ),
        "an unknown person signed": lambda host, document: host.sign(document, "olga", "eve"),
        "an unknown person signed first": lambda host, document: host.sign(
            document, "eve", "olga"
        ),
        "only unknown people signed": lambda host, document: host.sign(document, "eve"),
        "signatures for another purpose": _sign_other_namespace,
        "signatures of nothing": _sign_bare,
        "signatures of the section": _sign_of_section,
        "signatures of another run": _sign_of_another_plan,
        "the same signature with another byte": _sign_stretched,
        "more signatures than a plan can have": lambda host, document: host.sign(document) * 9,
        "signatures without content": lambda _host, _document: [armour(b"")] * 2,
        "signatures of zeros": lambda _host, _document: [armour(bytes(300))] * 2,
        "signatures longer than they are": lambda host, document: [
            _claim_length(one) for one in host.sign(document)
        ],
        "signatures of text": lambda _host, _document: ["dora\n", "olga\n"],
        "a signature in the words of another": lambda host, document: [
            "".join(host.sign(document)).replace("-----END SSH SIGNATURE-----\n", "", 1)
        ],
        "the signature of a person under the heading of another": lambda host, document: [
            f"{one}olga\n" for one in host.sign(document, "dora")
        ],
    }
    for name, sign in kinds.items():
        yield Way(name, "signed otherwise", _use_signatures(sign))

    for name, attempt in {
        "a key that has expired": _use_key_expired,
        "a key that is not valid yet": _use_key_not_yet,
        "a key that was removed": _use_key_removed,
        "a key that two people have": _use_key_doubled,
    }.items():
        yield Way(name, "signed otherwise", attempt)


def _put_blanks(signature: str) -> str:
    lines = signature.split("\n")
    return "\n".join([lines[0], *(f" {line}\t" for line in lines[1:-2]), *lines[-2:]])


def _add_tail(signature: str) -> str:
    return f"{signature}AAAA\n"


def _claim_touch(signature: str) -> str:
    blob = base64.b64decode("".join(signature.split("\n")[1:-2]))
    at = blob.rindex(b"\0\0\0\x18https") - 5
    return armour(blob[:at] + bytes([TOUCHED]) + blob[at + 1 :])


def _use_device(
    *,
    flags: int = TOUCHED,
    origin: str = PAGE,
    floor: str = "",
    change: Callable[[str], str] = str,
) -> Callable[[SignedHost], object]:
    def attempt(host: SignedHost) -> None:
        host.write_floor(*([floor] if floor else []))
        section = host.make_section()
        document = host.make_document(section)
        signature = change(host.sign_with_passkey(document, flags=flags, origin=origin))
        host.run(document, section, [*host.sign(document, "dora"), signature])

    return attempt


def _use_devices_otherwise() -> Iterator[Way]:
    for flags in (0, 2, 4, 8, 64, 128, 0xFE):
        yield Way(
            f"a device that nobody touched, flags {flags}", "device", _use_device(flags=flags)
        )
        for change, name in (
            (_put_blanks, "with blanks"),
            (_add_tail, "with a tail"),
            (_claim_touch, "that claims a touch"),
        ):
            said = f"a device that nobody touched, flags {flags}, {name}"
            yield Way(said, "device", _use_device(flags=flags, change=change))
    yield Way("a touch where a fingerprint is needed", "device", _use_device(floor="verify-user"))
    for origin in (
        "https://evil.example.com",
        "http://sign.example.com",
        "https://sign.example.com.evil.example",
        "https://sign.example.com:8443",
        "https://sign.example.com ",
        "https://SIGN.example.com",
        "-",
        "null",
        "x",
    ):
        yield Way(f"signed on a page at “{origin}”", "device", _use_device(origin=origin))


def _send_otherwise() -> Iterator[Way]:
    def use(change: Callable[[bytes], bytes]) -> Callable[[SignedHost], object]:
        def attempt(host: SignedHost) -> None:
            section = host.make_section()
            document = host.make_document(section)
            sent = frame_input("do", 1, document, section, host.sign(document)).encode()
            host.send(change(sent))

        return attempt

    added: Mapping[str, bytes] = {
        "another action": b"a undo 1\n",
        "another document": b"d keyturn-plan 1\n",
        "another nonce": b"d nonce 00000000000000000000000000000000\n",
        "another expiry": b"d expires 4000000000\n",
        "another host": b"d host lb1 0000 SHA256:0000\n",
        "another section": b"s keyturn-section 1\n",
        "another step": b"s step Second\ns do tee\ns do -a\ns do /tmp/x\n",
        "another word": b"s do /tmp/x\n",
        "more input": b"s in more\n",
        "a line of its own": b"rm -rf /\n",
        "an empty line": b"\n",
        "a NUL": b"s in \0\n",
        "a part that is unknown": b"x y\n",
    }
    for name, line in added.items():
        yield Way(f"{name} at the end", "input", use(lambda sent, line=line: sent + line))
        if name != "another action":
            yield Way(f"{name} at the start", "input", use(lambda sent, line=line: line + sent))
    changed: Mapping[str, Callable[[bytes], bytes]] = {
        "line ends of Windows": lambda sent: sent.replace(b"\n", b"\r\n"),
        "no line ends": lambda sent: sent.replace(b"\n", b" "),
        "NULs for blanks": lambda sent: sent.replace(b" ", b"\0"),
        "upper case": lambda sent: sent.upper(),
        "the input twice": lambda sent: sent * 2,
        "ten MiB of sections": lambda sent: sent + b"s in x\n" * 1_500_000,
        "four MB of hosts": lambda sent: sent + b"d host lb1 0 SHA256:A\n" * 180_000,
        "four MB of words": lambda sent: sent + b"s do x\n" * 570_000,
        "a line of ten MiB": lambda sent: sent + b"s in " + b"x" * 10_000_000 + b"\n",
        "step 0": lambda sent: sent.replace(b"a do 1", b"a do 0", 1),
        "step 2": lambda sent: sent.replace(b"a do 1", b"a do 2", 1),
        "step -1": lambda sent: sent.replace(b"a do 1", b"a do -1", 1),
        "step 1 1": lambda sent: sent.replace(b"a do 1", b"a do 1 1", 1),
        "step 1x": lambda sent: sent.replace(b"a do 1", b"a do 1x", 1),
        "step ../1": lambda sent: sent.replace(b"a do 1", b"a do ../1", 1),
        "step 99999": lambda sent: sent.replace(b"a do 1", b"a do 99999", 1),
        "an unknown action": lambda sent: sent.replace(b"a do 1", b"a run 1", 1),
        "an action with a path": lambda sent: sent.replace(b"a do 1", b"a ../do 1", 1),
        "no action": lambda sent: sent.split(b"\n", 1)[1],
        "undo first": lambda sent: sent.replace(b"a do 1", b"a undo 1", 1),
        "the words as undo": lambda sent: sent.replace(b"s do ", b"s undo "),
        "no words": lambda sent: b"\n".join(
            line for line in sent.split(b"\n") if not line.startswith(b"s do ")
        ),
        "the section of nothing": lambda sent: b"\n".join(
            line for line in sent.split(b"\n") if not line.startswith(b"s ")
        ),
        "another version of plans": lambda sent: sent.replace(
            b"keyturn-plan 1", b"keyturn-plan 2"
        ),
        "another version of sections": lambda sent: sent.replace(b"n-section 1", b"n-section 2"),
        "report only": lambda sent: sent.replace(b"a do 1", b"a report 1", 1),
        "other input": lambda sent: sent.replace(b"in changed", b"in replaced"),
        "the undo's input": lambda sent: sent.replace(b"in changed\n", b"in changed undone\n"),
        "letters outside of ASCII": lambda sent: sent.replace(b"step W", b"step \xc3\x9c"),
        "broken UTF-8": lambda sent: sent.replace(b"step W", b"step \xff"),
    }
    for name, change in changed.items():
        yield Way(name, "input", use(change))


def _prepare(host: SignedHost) -> tuple[str, str, list[str]]:
    section = host.make_section(host.make_step(), host.make_step("second"))
    document = host.make_document(section)
    return document, section, host.sign(document)


def _again(host: SignedHost) -> None:
    plan = _prepare(host)
    for _ in range(3):
        host.run(*plan)


def _at_once(host: SignedHost) -> None:
    sent = frame_input("do", 1, *_prepare(host)).encode()
    started = [host.start() for _ in range(6)]
    for process in started:
        assert process.stdin
        process.stdin.write(sent)
        process.stdin.close()
    for process in started:
        process.stdin = None
        process.communicate(timeout=60)


def _with_other_signatures(host: SignedHost) -> None:
    document, section, signatures = _prepare(host)
    host.run(document, section, signatures)
    host.run(document, section, [*signatures, host.sign_with_passkey(document)])
    host.run(document, section, signatures[::-1])


def _out_of_order(host: SignedHost) -> None:
    host.run(*_prepare(host), step=2)


def _undo_first(host: SignedHost) -> None:
    host.run(*_prepare(host), action="undo")


def _undo_twice(host: SignedHost) -> None:
    plan = _prepare(host)
    host.run(*plan)
    host.run(*plan, action="undo")
    host.run(*plan, action="undo")


def _after_its_undo(host: SignedHost) -> None:
    plan = _prepare(host)
    host.run(*plan)
    host.run(*plan, action="undo")
    host.run(*plan, step=2)
    host.run(*plan)


def _after_a_failure(host: SignedHost) -> None:
    section = host.make_section(Step(("false",)), host.make_step())
    document = host.make_document(section)
    plan = document, section, host.sign(document)
    host.run(*plan)
    host.run(*plan, step=2)
    host.run(*plan, step=2)


def _killed(host: SignedHost) -> None:
    plan = _prepare(host)
    process = host.start()
    assert process.stdin
    process.stdin.write(frame_input("do", 1, *plan).encode())
    process.stdin.close()
    while process.poll() is None and not list(host.record.glob("*-*/1-do")):
        time.sleep(0.001)
    process.kill()
    process.stdin = None
    process.communicate(timeout=60)
    time.sleep(0.2)
    host.run(*plan)
    host.run(*plan, step=2)


def _given_up(host: SignedHost) -> None:
    plan = _prepare(host)
    host.run(*plan, action="close")
    host.run(*plan)
    host.run(*plan, step=2)
    host.run(*plan, action="undo")


def _record_removed(host: SignedHost) -> None:
    plan = _prepare(host)
    host.run(*plan)
    for each in host.record.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    host.run(*plan)


def _record_began_anew(host: SignedHost) -> None:
    plan = _prepare(host)
    host.run(*plan)
    _record_removed(host)
    (host.record / "since").write_text(f"{int(time.time())}\n")
    host.run(*plan)


def _forgotten(host: SignedHost) -> None:
    plan = _prepare(host)
    host.run(*plan)
    for each in host.record.glob("*-*"):
        shutil.rmtree(each)
    (host.record / "since").write_text(f"{int(time.time()) - DAY} {int(time.time()) + DAY}\n")
    host.run(*plan)


def _run_again() -> Iterator[Way]:
    yield Way("a plan again", "again", _again, allowed=1)
    yield Way("a plan six times at once", "again", _at_once, allowed=1)
    yield Way("a plan with other signatures", "again", _with_other_signatures, allowed=1)
    yield Way("the second step first", "again", _out_of_order)
    yield Way("the undo first", "again", _undo_first)
    yield Way("the undo twice", "again", _undo_twice, allowed=2)
    yield Way("a step after its undo", "again", _after_its_undo, allowed=3)
    yield Way("the second step after a failure", "again", _after_a_failure)
    yield Way("a plan that was killed", "again", _killed, allowed=1)
    yield Way("a plan that was given up", "again", _given_up)
    yield Way("a plan whose record was removed", "again", _record_removed, allowed=1)
    yield Way("a plan from before a new record", "again", _record_began_anew, allowed=2)
    yield Way("a plan that was forgotten", "again", _forgotten, allowed=1)


def _use_other_plans() -> Iterator[Way]:
    def use(
        changed: Mapping[str, Callable[[SignedHost, str], str]],
    ) -> Callable[[SignedHost], object]:
        def attempt(host: SignedHost) -> None:
            section = host.make_section()
            facts = {name: make(host, section) for name, make in changed.items()}
            document = host.make_document(section, **facts)
            host.run(document, section, host.sign(document))

        return attempt

    def of_host(host: SignedHost, section: str, **changed: str) -> str:
        name, digest, key = host.make_document(section).splitlines()[-1].split()[1:]
        parts = {"name": name, "digest": digest, "key": key} | changed
        return " ".join(parts.values())

    now = int(time.time())
    facts: Mapping[str, Mapping[str, Callable[[SignedHost, str], str]]] = {
        "a plan for another host": {"host": lambda host, s: of_host(host, s, name="lb2")},
        "a plan for a host whose name begins alike": {
            "host": lambda host, s: of_host(host, s, name="lb11")
        },
        "a plan for any host": {"host": lambda host, s: of_host(host, s, name=".*")},
        "a plan for other steps": {"host": lambda host, s: of_host(host, s, digest="0" * 64)},
        "a plan for another host key": {
            "host": lambda host, s: of_host(host, s, key="SHA256:" + "A" * 43)
        },
        "a plan for no host key": {"host": lambda host, s: of_host(host, s, key="SHA256:")},
        "a plan for any host key": {"host": lambda host, s: of_host(host, s, key="SHA256:.*")},
        "a plan that has expired": {"expires": lambda _host, _s: str(now - 1)},
        "a plan that expired long ago": {"expires": lambda _host, _s: "1"},
        "a plan of next year": {"not_before": lambda _host, _s: str(now + 365 * DAY)},
        "a plan of an hour from now": {"not_before": lambda _host, _s: str(now + 3600)},
        "a plan from before the record": {"not_before": lambda _host, _s: str(now - 2 * DAY)},
        "a plan without expiry": {"expires": lambda _host, _s: ""},
        "a plan that expires in words": {"expires": lambda _host, _s: "never"},
        "a plan that expires by a sum": {"expires": lambda _host, _s: "a[$(tee -a x)]"},
        "a plan that never expires": {"expires": lambda _host, _s: "9" * 30},
        "a plan without a nonce": {"nonce": lambda _host, _s: ""},
        "a plan with a path as nonce": {"nonce": lambda _host, _s: "../../../../tmp/" + "0" * 16},
        "a plan with a short nonce": {"nonce": lambda _host, _s: "00"},
        "a plan with a long nonce": {"nonce": lambda _host, _s: "0" * 33},
        "a plan with a nonce in words": {"nonce": lambda _host, _s: "x" * 32},
        "a plan of a run in words": {"run": lambda _host, _s: "$(id)"},
        "a plan of another version": {"keyturn_plan": lambda _host, _s: "2"},
    }
    for name, changed in facts.items():
        yield Way(name, "plan", use(changed))


def _weaken_files() -> Iterator[Way]:
    def use(weaken: Callable[[SignedHost], object]) -> Callable[[SignedHost], object]:
        def attempt(host: SignedHost) -> None:
            weaken(host)
            section = host.make_section()
            document = host.make_document(section)
            host.run(document, section, host.sign(document))

        return attempt

    def link(host: SignedHost, name: str) -> None:
        place = getattr(host, name)
        moved = place.with_name("moved")
        place.rename(moved)
        place.symlink_to(moved)

    def fill(host: SignedHost) -> None:
        shutil.rmtree(host.record)
        host.record.write_text("")

    changes: Mapping[str, Callable[[SignedHost], object]] = {
        "no signers": lambda host: host.signers.unlink(),
        "empty signers": lambda host: host.signers.write_text(""),
        "signers that others may write": lambda host: host.signers.chmod(0o666),
        "signers that a group may write": lambda host: host.signers.chmod(0o664),
        "signers that belong to another": lambda host: shutil.chown(host.signers, 65534),
        "signers that are a link": lambda host: link(host, "signers"),
        "signers for anything": lambda host: host.signers.write_text(
            host.signers.read_text().replace("dora ", "* ").replace("olga ", "* ")
        ),
        "signers for several": lambda host: host.signers.write_text(
            host.signers.read_text().replace("dora ", "dora,olga ")
        ),
        "no floor": lambda host: host.floor.unlink(),
        "an empty floor": lambda host: host.floor.write_text(""),
        "a floor that others may write": lambda host: host.floor.chmod(0o646),
        "a floor that is a link": lambda host: link(host, "floor"),
        "a floor of another version": lambda host: host.floor.write_text(
            host.floor.read_text().replace("floor 1", "floor 2")
        ),
        "a floor with an unknown line": lambda host: host.write_floor("quorum tee"),
        "a floor with a line that names no group": lambda host: host.write_floor("signed 3"),
        "a floor without a host": lambda host: host.floor.write_text(
            host.floor.read_text().replace(f"host {'lb1'}\n", "")
        ),
        "a floor that asks no one": lambda host: host.floor.write_text("floor 1\nhost lb1\n"),
        "a floor that asks in words": lambda host: host.write_floor("signed few any tee"),
        "a floor that asks three": lambda host: host.write_floor("signed 3 any tee -a"),
        "a floor that asks an empty group": lambda host: host.write_floor("signed 1 nobody tee"),
        "a floor that forbids the program": lambda host: host.write_floor("never tee"),
        "a floor that forbids its first words": lambda host: host.write_floor("never tee -a"),
        "a floor with a skew in words": lambda host: host.write_floor("skew x"),
        "a directory that others may write": lambda host: host.floor.parent.chmod(0o777),
        "no record": lambda host: shutil.rmtree(host.record),
        "a record that is a file": fill,
        "a record that is a link": lambda host: link(host, "record"),
        "a record that others may write": lambda host: host.record.chmod(0o777),
        "a record that belongs to another": lambda host: shutil.chown(host.record, 65534),
        "a record without a beginning": lambda host: (host.record / "since").unlink(),
        "a record with an empty beginning": lambda host: (host.record / "since").write_text(""),
        "a record that begins in words": lambda host: (host.record / "since").write_text("x\n"),
        "a record on a full disk": _fill_disk,
    }
    for name, weaken in changes.items():
        yield Way(name, "files", use(weaken))


def _fill_disk(host: SignedHost) -> None:
    """Put the record onto a file system without room. The mount ends with the host's directory."""
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4k,mode=700", "none", host.record], check=True
    )
    (host.record / "since").write_text("1\n")


def _use_environment() -> Iterator[Way]:
    def use(**environment: str) -> Callable[[SignedHost], object]:
        def attempt(host: SignedHost) -> None:
            section = host.make_section()
            document = host.make_document(section)
            sent = frame_input("do", 1, document, section, host.sign(document, "olga"))
            values = {
                name: value.replace("HERE", str(host.root)) for name, value in environment.items()
            }
            folder = host.root / "programs"
            folder.mkdir(exist_ok=True)
            for name in ("ssh-keygen", "sha256sum", "awk", "find", "date"):
                program = folder / name
                program.write_text("#!/bin/sh\nexec echo dora\n")
                program.chmod(0o755)
            (folder / "rc").write_text(
                "signers=/dev/null; refuse() { :; }; check_floor() { :; }\n"
            )
            host.send(sent.encode(), **values)

        return attempt

    hostile: Mapping[str, Mapping[str, str]] = {
        "PATH": {"PATH": "HERE/programs:/usr/bin:/bin"},
        "ENV": {"ENV": "HERE/programs/rc"},
        "BASH_ENV": {"BASH_ENV": "HERE/programs/rc"},
        "IFS": {"IFS": "/-:"},
        "CDPATH": {"CDPATH": "HERE/programs"},
        "a function for refuse": {"BASH_FUNC_refuse%%": "() { :; }"},
        "a function for awk": {"BASH_FUNC_awk%%": "() { echo; }"},
        "SHELLOPTS": {"SHELLOPTS": "noexec"},
        "POSIXLY_CORRECT": {"POSIXLY_CORRECT": "1"},
        "TMPDIR": {"TMPDIR": "/nowhere"},
        "PS4": {"PS4": "$(tee -a HERE/changed)", "SHELLOPTS": "xtrace"},
        "variables of the program": {"people": "dora olga", "count": "2", "version": "1"},
        "awk's own": {"AWKPATH": "HERE/programs", "AWKLIBPATH": "HERE/programs"},
        "a language": {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"},
        "OpenSSH's own": {"SSH_SK_PROVIDER": "HERE/programs/rc", "HOME": "HERE/programs"},
    }
    for name, environment in hostile.items():
        yield Way(f"environment: {name}", "environment", use(**environment))


def _use_other_words() -> Iterator[Way]:
    """Steps that two people signed, but that the floor of the host does not let run."""

    def use(*words: str) -> Callable[[SignedHost], object]:
        def attempt(host: SignedHost) -> None:
            target = str(host.changed)
            host.write_floor("never install")
            step = replace(
                host.make_step(), words=[each.replace("TARGET", target) for each in words]
            )
            section = host.make_section(step)
            document = host.make_document(section)
            host.run(document, section, host.sign(document))

        return attempt

    def weaken(host: SignedHost) -> None:
        """One person signs a change of the files, for which a line of the floor asks for one."""
        script = host.root / "keyturn" / "signed-files-1"
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\necho changed >>{host.changed}\n")
        script.chmod(0o755)
        host.write_floor(f"signed 1 any {script}")
        section = host.make_section(Step((str(script),)))
        document = host.make_document(section)
        host.run(document, section, host.sign(document, "olga"))

    def write_otherwise(host: SignedHost) -> None:
        """A command that needs no signatures, with a number of its words written otherwise."""
        host.write_floor(
            "unsigned install -m 100 /etc/hostname TARGET".replace("TARGET", str(host.changed))
        )
        section = host.make_section(
            Step(("install", "-m", "0100", "/etc/hostname", str(host.changed)))
        )
        host.run(host.make_document(section), section, [])

    yield Way("words: the signers, signed by one", "words", weaken)
    yield Way("words: a number that the floor writes otherwise", "words", write_otherwise)
    for name, words in {
        "a program that is never run": ("cp", "/etc/hostname", "TARGET"),
        "another one": ("install", "/etc/hostname", "TARGET"),
        "one with a NUL in it": ("ins\0tall", "/etc/hostname", "TARGET"),
        "a variable before the program": ("X=1", "tee", "-a", "TARGET"),
        "a search path before the program": ("PATH=/tmp", "tee", "-a", "TARGET"),
        "an option before the program": ("-S", "tee -a TARGET"),
        "another option": ("--split-string=tee -a TARGET",),
        "an option that changes the directory": ("-C", "/", "tee", "-a", "TARGET"),
        "an empty word first": ("", "tee", "-a", "TARGET"),
        "all in one word": ("tee -a TARGET",),
        "a program that is not there": ("no-such-program", "TARGET"),
    }.items():
        yield Way(f"words: {name}", "words", use(*words))


RUN_AGAIN = {
    'if ! mkdir "$taken"': 'if ! mkdir -p "$taken"',
}
_UNVERIFIED = {'refuse "the signature by $who is': ': "the signature by $who is'}
# Of each protection, the text of the program, and what stands there without it.
TWINS = (
    Twin(
        "a signature is one of this plan",
        "signatures of another run",
        _UNVERIFIED,
    ),
    Twin(
        "only keys of the host's signers count",
        "an unknown person signed first",
        {
            'if (!(key in lines)) return "is by': 'if (0) return "is by',
            "who = person_of[key]": 'who = key in lines ? person_of[key] : "dora"',
            **_UNVERIFIED,
        },
    ),
    Twin(
        "a person counts once",
        "one person signed twice",
        {"if (!(who in counted)) {": "if (1) {"},
    ),
    Twin(
        "the floor says how many people",
        "one person signed",
        {'if (problem) fail(problem " (" floor ")")': ""},
    ),
    Twin(
        "somebody touched the device",
        "a device that nobody touched, flags 0",
        {"if (flags % 2 != 1)": "if (0)"},
    ),
    Twin(
        "the device asked for a fingerprint",
        "a touch where a fingerprint is needed",
        {"if (verifies &&": "if (0 &&"},
    ),
    Twin(
        "people signed on a page of the floor",
        "signed on a page at “https://evil.example.com”",
        {"&& !(origin in origins)": "&& 0"},
    ),
    Twin(
        "the steps are those of the plan",
        "other input",
        {"hash=${hash%% *}": "hash=${sections%% *}"},
    ),
    Twin(
        "the plan is for this host",
        "a plan for another host",
        {"&& host[1] == name": "&& host[1] ~ /^[a-z0-9]+$/"},
    ),
    Twin(
        "the plan is for the key of this host",
        "a plan for another host key",
        {'*) refuse "the plan is for a host with': '*) : "the plan is for a host with'},
    ),
    Twin(
        "a plan expires",
        "a plan that has expired",
        {'[ "$now" -lt "$ends" ] || refuse': "[ -n x ] || refuse"},
    ),
    Twin(
        "a plan begins",
        "a plan of next year",
        {'[ "$now" -ge "$((begins - skew))" ] ||': "[ -n x ] ||"},
    ),
    Twin("a step runs once", "a plan again", RUN_AGAIN),
    Twin(
        "a step that was given up never runs",
        "a plan that was given up",
        {'{ echo closed >"$taken/end"; }': '{ rm -r "$taken"; }'},
    ),
    Twin(
        "one of several at once",
        "a plan six times at once",
        RUN_AGAIN,
    ),
    Twin(
        "steps run in order",
        "the second step first",
        {'[ "$end" = 0 ] || refuse': "[ -n x ] || refuse"},
    ),
    Twin(
        "an undo needs its step",
        "the undo first",
        {"undo- | undo-closed) refuse": "undo-x) refuse"},
    ),
    Twin(
        "no plan is older than the record",
        "a plan from before a new record",
        {'[ "$begins" -ge "$since" ] || refuse': "[ -n x ] || refuse"},
    ),
    Twin(
        "a removed record stops the host",
        "a plan whose record was removed",
        {
            "'' | *[!0-9]*) refuse \"the record of what ran": 'x) refuse "the record of what ran',
            '[ "$begins" -ge "$since" ] ||': '[ "$begins" -ge "${since:-0}" ] ||',
        },
    ),
    Twin(
        "what was forgotten stays refused",
        "a plan that was forgotten",
        {'[ "$ends" -gt "${forgotten:-0}" ] || refuse': "[ -n x ] || refuse"},
    ),
    Twin(
        "only root can change the signers",
        "signers that others may write",
        {'[ -z "$loose" ] || refuse': "[ -n x ] || refuse"},
    ),
    Twin(
        "a floor is understood wholly",
        "a floor with an unknown line",
        {'if (odd != "")': "if (0)"},
    ),
    Twin(
        "some commands are never run",
        "words: a program that is never run",
        {'if (part[1] == "never" &&': "if (0 &&"},
    ),
    Twin(
        "awk and shell read the same words",
        "words: one with a NUL in it",
        {" | tr -d '\\000'": ""},
        # Its awk ends a line at a NUL, so there is no such program.
        unneeded_in="busybox",
    ),
    Twin(
        "all lines of the floor hold for the floor itself",
        "words: the signers, signed by one",
        {"signed-files-/) all = 1": "signed-files-/) all = 0"},
    ),
    Twin(
        "a command begins with its program",
        "words: a variable before the program",
        {"if (word[1] ~ /^$|^-|=/)": "if (0)"},
    ),
)
