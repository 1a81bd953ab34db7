"""The ways of a thief who has the whole Keyturn of an enrolled host, over real sshd and sudo."""

import contextlib
import hashlib
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bot.model.run import RequestTerms, Run
from connectors.errors import DomainError
from connectors.run_signed import PROGRAM_PATH
from tests.bot.api.conftest import create_api_harness
from tests.bot.harness import WEB
from tests.bot.signing.soft_passkey import SoftPasskey
from tests.guarantee.attacked_host import AttackedHost
from tests.guarantee.ways import RUN_AGAIN
from tests.playground.enrolled_service import EnrolledService


@dataclass(frozen=True)
class ServiceWay:
    """One attempt."""

    name: str
    kind: str
    attempt: Callable[[AttackedHost], object]


@dataclass(frozen=True)
class ServiceTwin:
    """A way that changes the host once a protection of the host is taken away."""

    protection: str
    way: str
    weaken: Callable[[AttackedHost], object]


def list_service_ways() -> list[ServiceWay]:
    """Return every way, each with a name of its own."""
    ways = [*_own_the_service(), *_replay(), *_log_in()]
    assert len({way.name for way in ways}) == len(ways)
    return ways


_Attempt = Callable[[AttackedHost, EnrolledService], object]


def _with_service(attempt: _Attempt) -> Callable[[AttackedHost], None]:
    def run(attacked: AttackedHost) -> None:
        with attacked.open_service() as service:
            attempt(attacked, service)

    return run


def _push_signed_by(*people: str) -> _Attempt:
    def attempt(attacked: AttackedHost, service: EnrolledService) -> None:
        run = service.request()
        attacked.push(service, run, [service.sign(run, person) for person in people])

    return attempt


def _push_nonsense(attacked: AttackedHost, service: EnrolledService) -> None:
    run = service.request()
    blob = "AAAA" * 20
    text = f"-----BEGIN SSH SIGNATURE-----\n{blob}\n-----END SSH SIGNATURE-----\n"
    attacked.push(service, run, [text, text])


def _add_own_key(attacked: AttackedHost, service: EnrolledService) -> None:
    """Let people.yaml name the thief's keys as those of Dora and of Olga."""
    people, keys = service.policies.path / "people.yaml", service.keys
    others = {"dora": keys["eve"].line, "olga": SoftPasskey().public.line}
    text = people.read_text()
    for name, line in others.items():
        text = text.replace(keys[name].line, line)
    people.write_text(text)
    run = service.request()
    signature = service.sign(run, "eve")
    with contextlib.suppress(DomainError):
        service.service.sign_request(run.id, person="dora", digest=run.digest, signature=signature)
    attacked.push(service, run, [signature, service.sign(run, "olga")][:1])


def _allow_all(service: EnrolledService) -> None:
    rule = '@id("all") permit (principal, action, resource);\n'
    (service.policies.path / "policy.cedar").write_text(rule)


def _change_rules(attacked: AttackedHost, service: EnrolledService) -> None:
    _allow_all(service)
    attacked.push(service, service.request(), [])


def _unenrol(attacked: AttackedHost) -> None:
    """Let the inventory say that the host is not enrolled, and the rules permit everything."""
    with attacked.open_service(is_enrolled=False) as service:
        _allow_all(service)
        service.request()


def _alter(change: Callable[[str], str]) -> _Attempt:
    """Alter the steps after both have signed, and the hash in the document with them."""

    def attempt(attacked: AttackedHost, service: EnrolledService) -> None:
        run = service.request()
        assert run.plan
        signatures = [service.sign(run, person) for person in ("dora", "olga")]
        old = run.plan.sections[0].text
        new = change(old)
        assert new != old
        document = run.plan.document.replace(_hash(old), _hash(new))
        attacked.send_texts(document, new, signatures)
        attacked.send_texts(run.plan.document, new, signatures)

    return attempt


def _alter_undo(text: str) -> str:
    return text.replace("undo ", "undo x", 1)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _name_other_host(attacked: AttackedHost, service: EnrolledService) -> None:
    """Use what both have signed for another host with the same key."""
    run = service.request()
    assert run.plan
    document = run.plan.document.replace("\nhost web1 ", "\nhost web2 ")
    assert document != run.plan.document
    signatures = [service.keys[one].sign(document.encode()) for one in ("dora", "olga")]
    attacked.send_texts(document, run.plan.sections[0].text, signatures)


def _use_passkey(*, flags: int = 5, origin: str = "https://sign.example.com") -> _Attempt:
    def attempt(attacked: AttackedHost, service: EnrolledService) -> None:
        run = service.request()
        assert run.plan
        made = attacked.passkey.sign(run.plan.document.encode(), flags=flags, origin=origin)
        attacked.push(service, run, [service.sign(run, "dora"), made])

    return attempt


def _press_approve(attacked: AttackedHost, service: EnrolledService) -> None:
    """Press every button of chat as the owner, as an administrator of Slack can."""
    run = service.request()
    for person in ("olga", "adam", "stan", "dora"):
        with contextlib.suppress(DomainError):
            service.service.approve_run(run.id, person=person, digest=run.digest, reason="yes")
    service.wait(run)
    attacked.send(run, [])


def _use_stolen_tokens(attacked: AttackedHost, service: EnrolledService) -> None:
    """Approve over the API with tokens of everyone."""
    run = service.request()
    api = create_api_harness(service.harness)
    for person in ("dora", "olga"):
        program = api.program(person, "read", "request", "approve")
        for body in ({"digest": run.digest}, {"digest": run.digest, "signature": ""}):
            for action in ("sign", "approve"):
                program.post(f"/runs/{run.id}/{action}", json=body)
        program.close()
    service.wait(run)


def _use_break_glass(attacked: AttackedHost, service: EnrolledService) -> None:
    _allow_all(service)
    run = service.request()
    with contextlib.suppress(DomainError):
        service.service.break_glass.request_break_glass(
            run.id, person="dora", reason="everything is down, truly"
        )
    service.wait(run)


def _own_the_service() -> Iterator[ServiceWay]:
    ways: dict[str, dict[str, _Attempt]] = {
        "forged approvals": {
            "approvals without signatures, forged with the key of the log": _push_signed_by(),
            "signatures of one person, forged for two": _push_signed_by("olga", "olga"),
            "a signature of the requester alone": _push_signed_by("dora"),
            "a signature of the owner alone": _push_signed_by("olga"),
            "signatures of a stranger in the database": _push_signed_by("eve", "eve"),
            "a signature of a stranger beside one of the owner": _push_signed_by("eve", "olga"),
            "signatures of nothing in the database": _push_nonsense,
            "a passkey on another page": _use_passkey(origin="https://evil.example.com"),
            "a passkey on a page without HTTPS": _use_passkey(origin="http://sign.example.com"),
            "a passkey that no one touched": _use_passkey(flags=0),
        },
        "altered plans": {
            "other steps after the signatures": _alter(lambda text: text.replace("Evil", "Good")),
            "another program after the signatures": _alter(
                lambda text: text.replace("\ndo ", "\ndo /bin/touch\ndo ", 1)
            ),
            "another undo after the signatures": _alter(_alter_undo),
            "a plan that both signed for another host": _name_other_host,
        },
        "stolen rights": {
            "the thief's own key in people.yaml": _add_own_key,
            "other rules": _change_rules,
            "buttons of chat as everyone": _press_approve,
            "tokens of everyone over the API": _use_stolen_tokens,
            "break-glass": _use_break_glass,
        },
    }
    for kind, attempts in ways.items():
        for name, attempt in attempts.items():
            yield ServiceWay(name, kind, _with_service(attempt))
    yield ServiceWay("an inventory in which the host is not enrolled", "stolen rights", _unenrol)


def _run_and_undo(attacked: AttackedHost, service: EnrolledService) -> tuple[Run, Path]:
    """Have people change the host and change it back; return the run, and the database before."""
    run = service.request()
    service.sign_request(run)
    signature = service.sign(run, "olga")
    service.service.approve_run(run.id, person="olga", digest=run.digest, signature=signature)
    backup = service.directory / "backup.db"
    _copy_database(service.directory / "keyturn.db", backup)
    assert service.wait(run).state.value == "succeeded"
    undo = service.service.request_undo(run.id, RequestTerms("dora", WEB))
    assert service.sign_and_approve(service.wait(undo)).state.value == "succeeded"
    attacked.accept_change()
    return run, backup


def _copy_database(source: Path, target: Path) -> None:
    with (
        contextlib.closing(sqlite3.connect(source)) as old,
        contextlib.closing(sqlite3.connect(target)) as new,
    ):
        old.backup(new)


def _restore_backup(attacked: AttackedHost, service: EnrolledService) -> None:
    """Run again what ran already, by a database from before."""
    run, backup = _run_and_undo(attacked, service)
    _copy_database(backup, service.directory / "keyturn.db")
    service.queue.enqueued.append(run.id)
    with contextlib.suppress(Exception):
        service.harness.run_queued_work()
    attacked.send(run, [service.sign(run, "dora"), service.sign(run, "olga")])


def _send_again(attacked: AttackedHost, service: EnrolledService) -> None:
    run, _ = _run_and_undo(attacked, service)
    signatures = [service.sign(run, "olga"), service.sign(run, "dora")]
    attacked.send(run, signatures)


def _undo_again(attacked: AttackedHost, service: EnrolledService) -> None:
    """Send the undo of a plan, which people signed with it, more than the once that it runs."""
    run, _ = _run_and_undo(attacked, service)
    signatures = [service.sign(run, "dora"), service.sign(run, "olga")]
    attacked.send(run, signatures, "undo")
    attacked.accept_change()
    attacked.send(run, signatures, "undo")
    attacked.send(run, signatures[::-1], "undo")


def _use_old_signatures(attacked: AttackedHost, service: EnrolledService) -> None:
    run, _ = _run_and_undo(attacked, service)
    signatures = [service.sign(run, "dora"), service.sign(run, "olga")]
    attacked.push(service, service.request(), signatures)


def _use_denied(attacked: AttackedHost, service: EnrolledService) -> None:
    """Use the approval of one run for another of the same steps that was denied."""
    first, second = service.request(), service.request()
    signatures = [service.sign(first, "dora"), service.sign(first, "olga")]
    service.service.deny_run(second.id, person="olga", reason="no")
    attacked.push(service, second, signatures)


def _replay() -> Iterator[ServiceWay]:
    ways: dict[str, dict[str, _Attempt]] = {
        "replays": {
            "a restored backup": _restore_backup,
            "an executed plan by hand": _send_again,
            "the undo of a plan a second time": _undo_again,
        },
        "reused signatures": {
            "old signatures for a new plan": _use_old_signatures,
            "the signatures of another run": _use_denied,
        },
    }
    for kind, attempts in ways.items():
        for name, attempt in attempts.items():
            yield ServiceWay(name, kind, _with_service(attempt))


def _type(command: str) -> Callable[[AttackedHost], None]:
    def attempt(attacked: AttackedHost) -> None:
        words = {
            "ETC": str(attacked.etc),
            "RECORD": str(attacked.host.record),
            "PROGRAM": PROGRAM_PATH,
            "AGENTS": attacked.host.host().settings["nginx.agents"],
            "TMP": str(attacked.temporary),
        }
        attacked.type(_fill(command, words), sent="a do 1\n")

    return attempt


def _fill(text: str, places: Mapping[str, str]) -> str:
    return re.sub("|".join(places), lambda found: places[found[0]], text)


def _copy_with(program: str, *words: str, sent: str = "") -> Callable[[AttackedHost], None]:
    def attempt(attacked: AttackedHost) -> None:
        source = attacked.temporary / "thief"
        source.write_text("eve ssh-ed25519 AAAA\n")
        places = {
            "ETC": str(attacked.etc),
            "SOURCE": str(source),
            "TMP": str(attacked.temporary),
        }
        *given, typed = [_fill(word, places) for word in (*words, sent)]
        attacked.copy(program, *given, sent=typed)

    return attempt


_COMMANDS = {
    "a shell of sudo": "sudo -n sh -c 'echo x >>ETC/floor'",
    "a shell of sudo with the program": "sudo -n sh PROGRAM",
    "sudo -s": "sudo -n -s PROGRAM",
    "sudo -i": "sudo -n -i",
    "sudo as number -1": "sudo -n -u '#-1' sh -c 'echo x >>ETC/floor'",
    "sudo with its environment": "sudo -n -E PROGRAM",
    "sudo with a variable": "sudo -n BASH_ENV=TMP/x PROGRAM",
    "sudo with a preloaded library": "sudo -n LD_PRELOAD=TMP/x.so PROGRAM",
    "sudo with a search path": "sudo -n env PATH=TMP PROGRAM",
    "sudo in another directory": "sudo -n -D TMP PROGRAM",
    "sudo with an argument": "sudo -n PROGRAM do 1",
    "sudo with a path above the program": "sudo -n /usr/local/lib/keyturn/../keyturn/run-signed x",
    "sudo -e of the sudoers": "sudo -n -e /etc/sudoers.d/keyturn",
    "sudo -e of the signers": "sudo -n -e ETC/signers",
    "sudo tee": "echo x | sudo -n tee -a ETC/floor",
    "sudo cp": "sudo -n cp /bin/true PROGRAM",
    "sudo visudo": "sudo -n visudo -c",
    "sudo systemctl": "sudo -n systemctl restart nginx",
    "sudo mount": "sudo -n mount --bind TMP ETC",
    "the probation programs": "sudo -n /usr/local/lib/keyturn/probation-arm-0",
    "a script of runbooks": 'for one in /usr/local/lib/keyturn/*; do sudo -n "$one" x; done',
    "append to the floor": "echo 'signed 0 any' >>ETC/floor",
    "append to the signers": "echo 'eve ssh-ed25519 A' >>ETC/signers",
    "move the directory of the signers": "mv ETC ETC.old",
    "a link in place of the signers": "ln -sf TMP/signers ETC/signers",
    "a hard link to the signers": "ln ETC/signers TMP/kt-link && echo x >>TMP/kt-link",
    "remove the beginning of the record": "rm -f RECORD/since",
    "a directory in the record": "mkdir RECORD/x",
    "links at the names of the record's temporary files": (
        "for n in a b c; do ln -sf ETC/floor TMP/in.$n; ln -sf ETC/floor RECORD/in.$n; done"
    ),
    "an older program in its place": "cp /bin/true PROGRAM",
    "a link in its place": "ln -sf /bin/true PROGRAM",
    "the program moved away": "mv PROGRAM PROGRAM.old",
    "more sudoers": "echo 'kt-change ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/zz",
    "the change itself": "echo 'Evil Bot/2' >>AGENTS",
    "a namespace of its own": "unshare -rm sh -c 'mount --bind TMP ETC; sudo -n PROGRAM'",
    "a ptraced sudo": "gdb -batch -ex run --args sudo -n PROGRAM",
}


def _log_in() -> Iterator[ServiceWay]:
    for name, command in _COMMANDS.items():
        yield ServiceWay(f"login: {name}", "stolen login", _type(command))
    for name, attempt in {
        "sftp to the signers": _copy_with(
            "sftp", "-s", "/usr/lib/openssh/sftp-server", "TARGET", sent="put SOURCE ETC/signers\n"
        ),
        "sftp in place of the floor": _copy_with(
            "sftp",
            *("-s", "/usr/lib/openssh/sftp-server", "TARGET"),
            sent="put SOURCE TMP/kt-floor\nrename TMP/kt-floor ETC/floor\n",
        ),
        "scp to the signers": _copy_with("scp", "-O", "SOURCE", "TARGET:ETC/signers"),
        "scp to the sudoers": _copy_with("scp", "-O", "SOURCE", "TARGET:/etc/sudoers.d/zz"),
    }.items():
        yield ServiceWay(f"login: {name}", "stolen login", attempt)


# --- what the host is without a protection ---


def _allow_sudo(attacked: AttackedHost) -> None:
    (attacked.sudoers / "zz").write_text("kt-change ALL=(ALL) NOPASSWD: ALL\n")


def _ask_no_signatures(attacked: AttackedHost) -> None:
    floor = attacked.etc / "floor"
    floor.write_text(
        floor.read_text()
        .replace("signed 2 any", "signed 0 any")
        .replace("signed 1 owners", "signed 0 owners")
    )


def _name_eve(attacked: AttackedHost) -> None:
    signers = attacked.etc / "signers"
    line = attacked.keys["eve"].line
    signers.write_text(f'{signers.read_text()}eve namespaces="keyturn-plan" {line}\n')


def _name_evil_page(attacked: AttackedHost) -> None:
    floor = attacked.etc / "floor"
    floor.write_text(f"{floor.read_text()}origin https://evil.example.com\n")


def _open_files(attacked: AttackedHost) -> None:
    for file in (attacked.etc, *attacked.etc.iterdir()):
        file.chmod(0o777)


def _open_programs(attacked: AttackedHost) -> None:
    for file in (attacked.program.parent, attacked.program):
        file.chmod(0o777)


def _forget_what_ran(attacked: AttackedHost) -> None:
    text = attacked.program.read_text()
    for old, new in RUN_AGAIN.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    attacked.program.write_text(text)


def _name_host_anew(attacked: AttackedHost) -> None:
    floor = attacked.etc / "floor"
    floor.write_text(floor.read_text().replace("host web1", "host web2"))


SERVICE_TWINS = (
    ServiceTwin(
        "the floor says how many people",
        "approvals without signatures, forged with the key of the log",
        _ask_no_signatures,
    ),
    ServiceTwin(
        "the host has its own list of keys",
        "a signature of a stranger beside one of the owner",
        _name_eve,
    ),
    ServiceTwin("the floor names the page", "a passkey on another page", _name_evil_page),
    ServiceTwin(
        "the floor names the host", "a plan that both signed for another host", _name_host_anew
    ),
    ServiceTwin("a step runs once", "a restored backup", _forget_what_ran),
    ServiceTwin("a step runs once, by hand", "an executed plan by hand", _forget_what_ran),
    ServiceTwin(
        "sudo permits one program",
        "an inventory in which the host is not enrolled",
        _allow_sudo,
    ),
    ServiceTwin("sudo permits no shell", "login: a shell of sudo", _allow_sudo),
    ServiceTwin("sudo edits nothing", "login: sudo tee", _allow_sudo),
    ServiceTwin("the signers belong to root", "login: append to the signers", _open_files),
    ServiceTwin("the signers take no file", "login: sftp to the signers", _open_files),
    ServiceTwin(
        "the program belongs to root", "login: an older program in its place", _open_programs
    ),
)
