"""One request from start to end on real servers: `make demo`.

A developer requests in chat that an address is unblocked, she and an owner sign the exact plan
with passkeys, the host checks both signatures, the entry leaves the stick table of a real HAProxy
over real SSH, and the change log proves it. A thief with everything that Keyturn has changes
nothing there. All requests come in as from Slack, signed, by way of an emulator of Slack.

Without root, the host cannot be enrolled: the owner approves in chat instead.
"""

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from bot.audit import change_log, events, verification
from bot.audit.change_log import Entry
from bot.db import runs
from bot.features.drift import rows as drift
from bot.features.drift.actions import DriftActions
from bot.features.drift.details import describe_drift
from bot.features.drift.rows import DriftKey
from bot.model.drift_state import DriftState
from bot.model.plan import ResolvedPlan, parse_plan
from bot.model.text import escape_control
from bot.model.times import to_datetime
from runbooks import OwnRunbookError, load_catalogue, read_own_files
from runbooks._catalogue import is_own
from tests.playground import demo_history, sample_company
from tests.playground.demo_signing import (
    SITE,
    Passkeys,
    can_enrol,
    choose_port,
    find_pending,
    try_as_thief,
)
from tests.playground.enrolled import EnrolledLogins
from tests.playground.fleet import SHOP_PLACES, Enrolment, LoopbackFleet, get_agents_file
from tests.playground.service import Chat, Service

ABUSER = "203.0.113.9"
PEOPLE = {"dora": "U0DORA", "olga": "U0OLGA", "adam": "U0ADAM", "stan": "U0STAN"}
# The demo's sign-in links are printed once and may be read an hour later.
_LINK_SECONDS = 12 * 3600
_PATIENCE = 20.0

_COLOURS = sys.stdout.isatty()


def main() -> int:
    began = time.monotonic()
    os.umask(0o022)  # a policy that others may write is refused
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="keyturn-demo-"))
    port = choose_port()
    passkeys = Passkeys(port) if can_enrol() else None
    try:
        sample_company.create_policy(directory / "policy")
        enrolled: dict[str, Enrolment] = {}
        if passkeys is not None:
            passkeys.add_to_policy(directory / "policy")
            enrolled["lb1"] = passkeys.enrolment
        with (
            LoopbackFleet(directory / "policy", places=SHOP_PLACES, enrolled=enrolled) as fleet,
            _serve_with_past(sample_company.add_fault_tree(directory), fleet, port) as service,
        ):
            say(f"Ready in {time.monotonic() - began:.1f} s: {', '.join(fleet.hosts)} are real")
            say("OpenSSH servers on this machine, lb1 runs a real HAProxy, web1 a real nginx.")
            if passkeys is not None:
                say("lb1 is enrolled: it runs what two people have signed, and nothing else.\n")
            else:
                say("lb1 is not enrolled: only root can give it logins of its own here.\n")
            went_well = play(fleet, service, passkeys) and show_drift(fleet, service)
            if went_well and os.environ.get("STAY", "1") != "0":
                stay(service)
    except KeyboardInterrupt:
        say("\nStopped.")
        return 130
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0 if went_well else 1


def _serve_with_past(directory: Path, fleet: LoopbackFleet, port: int) -> Service:
    began = time.monotonic()
    demo_history.record_history(directory, now=round(time.time() * 1_000_000))
    demo_history.add_freeze(directory / "policy")
    say(f"Recorded a history of 30 days in {time.monotonic() - began:.1f} s")
    fleet.enrol()
    return Service(
        directory,
        port=port,
        base_url=f"http://{SITE}:{port}",
        witness=directory / "witness",
    )


def play(fleet: LoopbackFleet, service: Service, passkeys: Passkeys | None) -> bool:
    """Play the request; return whether the table was cleared and the log verifies."""
    haproxy = fleet.haproxy
    for address in (ABUSER, "198.51.100.23"):
        haproxy.abuse(address)
    blocked = haproxy.get(ABUSER)
    heading(f"{ABUSER} has sent too many requests; HAProxy answers with status {blocked}")
    say(_indented(_rows(haproxy.table("http"))))

    chat = Chat(service)
    with service.keyturn.database.reading() as tx:
        before, _ = change_log.get_head(tx)
    tail = threading.Thread(
        target=_print_entries, args=(service, before, done := threading.Event())
    )
    tail.start()
    try:
        command = f"/keyturn abusers clear lb1 {ABUSER} because a customer called"
        heading(f"Dora, a developer, types:  {command}")
        chat.say(PEOPLE["dora"], command)
        if passkeys is None:
            label, (ts, where) = _until(lambda: _approval(chat), "waiting for the card")
            heading(f"Olga, an owner of the edge, reads the card and presses:  {label}")
            chat.press(PEOPLE["olga"], ts, where)
        else:
            _until(lambda: chat.shows("Sign…"), "waiting for the card")
            heading("Dora, then Olga, an owner of the edge, open Sign… and touch their passkeys")
            sign(service, passkeys)
        _until(lambda: _ended(service, before), "waiting for the end of the run")
    finally:
        done.set()
        tail.join()
        chat.close()
    went_well = _proven(fleet, service, blocked)
    return (passkeys is None or show_thief(fleet, service)) and went_well


def sign(service: Service, passkeys: Passkeys) -> None:
    """Have the plan signed by who requested it, and by an owner."""
    run = _until(lambda: find_pending(service), "waiting for the plan")
    passkeys.sign(service, run, "dora")
    passkeys.sign(service, run, "olga")


def show_thief(fleet: LoopbackFleet, service: Service) -> bool:
    """Try what a stolen Keyturn could send to lb1; return whether it changes nothing."""
    host, haproxy = fleet.hosts["lb1"], fleet.haproxy
    assert isinstance(host, EnrolledLogins)
    before = _rows(haproxy.table("http")).count("key=")
    plan = _find_plan(service)
    heading("Someone has stolen Keyturn, with its database and all of its keys, and tries on lb1")
    refusals = [*try_as_thief(host, haproxy.socket("operator"), plan)]
    for what, answer in refusals:
        say(f"  {what}")
        say(f"    {answer or 'IT RAN'}")
    holds = _rows(haproxy.table("http")).count("key=") == before and all(dict(refusals).values())
    _tick(holds, f"lb1 {'ran none of it' if holds else 'RAN IT'}: no one had signed it")
    return holds


def _find_plan(service: Service) -> ResolvedPlan:
    """Return the plan that was signed last."""
    with service.keyturn.database.reading() as tx:
        (signed,) = change_log.list_newest_entries_of_kind(
            tx, events.RequestSigned.kind, person="dora", limit=1
        )
        plan = runs.get_run(tx, signed.run or 0).plan
    assert plan is not None
    return plan


def _proven(fleet: LoopbackFleet, service: Service, blocked: int) -> bool:
    with service.keyturn.database.reading() as tx:
        verdict = verification.verify_log(tx)
    cleared = not fleet.haproxy.marked(ABUSER)
    heading("Result")
    say(_indented(_rows(fleet.haproxy.table("http"))))
    _tick(blocked == 503, f"HAProxy answered {ABUSER} with status {blocked} before")
    _tick(cleared, f"{ABUSER} is {'no longer' if cleared else 'STILL'} marked in HAProxy's table")
    _tick(verdict.broken is None, f"the change log verifies: {verdict.entries} entries")
    return blocked == 503 and cleared and verdict.broken is None


def show_drift(fleet: LoopbackFleet, service: Service) -> bool:
    """Unblock an agent by hand; return whether Keyturn finds it."""
    file = get_agents_file(fleet.nginxes["web1"])
    command = f"sed -i /{demo_history.AGENT.partition('/')[0]}/d {file}"
    heading(f"Someone logs in to web1 and unblocks {demo_history.AGENT} by hand:  {command}")
    fleet.hosts["web1"].type_by_hand(command)
    service.keyturn.service.bind(DriftActions).read_host_now("web1", person="olga")
    database = service.keyturn.database

    def find_drift() -> DriftKey | None:
        with database.reading() as tx:
            keys = drift.list_keys(tx, host="web1", state=DriftState.CHANGED)
        return keys[0] if keys else None

    key = _until(find_drift, "waiting for the reading")
    say(f"  {describe_drift(key)}")
    for one in key.candidates[:3]:
        if one.at:
            say(f"  {to_datetime(one.at):%H:%M:%S}  {one.kind} {one.account}: {one.description}")
    return True


def stay(service: Service) -> None:
    """Leave something to decide, say what to try, and keep everything running until Ctrl-C."""
    demo_history.request_open_runs(service.keyturn.service)
    heading("Look around")
    say(f"  Chat             {service.emulator.sign_in_link()}")
    say(f"  Change history   {service.address}/runs")
    say(f"  Drift            {service.address}/drift")
    say("  Sign-in links (each works once)")
    for person in PEOPLE:
        say(f"    {person:<5} {service.sign_in_link(person, seconds=_LINK_SECONDS)}")
    settings = service.keyturn.settings
    tokens = {
        person: service.keyturn.service.tokens.create_token(
            person=person, scopes=("read", "request", "approve"), days=1, source="cli"
        )[1]
        for person in ("dora", "olga", "adam")
    }
    say("  Command line, in another terminal")
    say('    export PATH="$PWD/.venv/bin:$PATH"')
    say(f"    export KEYTURN_URL={service.address}")
    say(f"    export KEYTURN_POLICY={settings.policy} KEYTURN_DATA={settings.data}")
    own = settings.data.parent / "own"
    (own / "runbooks").mkdir(parents=True)  # commands refuse a directory without it
    say(f"    export KEYTURN_RUNBOOKS={own}")
    say(f"    export KEYTURN_TOKEN={tokens['dora']}  # as dora")
    say("    keyturn request abusers show lb1")
    say("    keyturn tree draw balancers")
    say(f"    export KEYTURN_TOKEN={tokens['adam']}  # as adam")
    say(f"    export KEYTURN_TOKEN={tokens['olga']}  # as olga")
    say("    keyturn pending")
    say("\nTry next")
    say("  as olga or adam   approve, deny or answer with other values: the runs under Home")
    say("  as dora           request the plan that is ready, or undo a run of the history")
    say("  as stan           approve on behalf of Adam, or suspend the schedule")
    say("Changes of lb1 wait for signatures with passkeys that only this program has.")
    say("\nIn the chat try  /keyturn help,  /keyturn tree  or  /keyturn drift.")
    say("Enter restarts Keyturn, as a runbook of your own needs it. Ctrl-C ends the demo.")
    for _ in sys.stdin:
        _restart(service, own)
    while True:
        time.sleep(3600)


def _restart(service: Service, own: Path) -> None:
    """Start Keyturn again, with the runbooks in a directory."""
    os.environ["KEYTURN_RUNBOOKS"] = str(own)
    try:
        read_own_files()
    except OwnRunbookError as error:
        say(f"Keyturn would not start: {error}. Correct it, then press Enter again.")
        return
    service.restart()
    enabled = ", ".join(name for name, one in load_catalogue().items() if is_own(one))
    say(f"Keyturn was restarted. Your own runbooks: {enabled or 'none is enabled'}")


# --- events, as they are committed ---


def _print_entries(service: Service, seen: int, done: threading.Event) -> None:
    """Print each entry of the change log after *seen* as it is committed."""
    while True:
        last_look = done.is_set()
        with service.keyturn.database.reading() as tx:
            for entry in change_log.list_entries_after(tx, seen):
                if entry.run is not None:
                    show(entry)
                seen = entry.seq
        if last_look:
            return
        done.wait(0.05)


def show(entry: Entry) -> None:
    """Print one event: time, kind, person and entry of the log."""
    when = to_datetime(entry.at).strftime("%H:%M:%S.%f")[:-3]
    who = f" by {entry.person}" if entry.person else ""
    place = dim(f"entry {entry.seq}, {entry.hash[:12]}")
    say(f"  {dim(when)}  {bold(entry.kind + who):<28} {place}")
    for line in _details(entry):
        say(f"                {escape_control(line)}")


def _details(entry: Entry) -> Generator[str]:
    facts = entry.facts
    match entry.kind:
        case "requested":
            yield facts["request"]
            yield f"reason: {facts['reason']}"
        case "planned":
            yield from _plan(entry)
        case "step sending":
            yield f"step {facts['step']} on {entry.host}: {facts['command']}"
        case "request signed" | "approved" if "signing_key" in facts:
            yield f"with the key {facts['signing_key']}"
        case "verified":
            yield facts["current_state"]
        case _:
            if facts.get("summary"):
                yield facts["summary"]


def _plan(entry: Entry) -> Generator[str]:
    facts = entry.facts
    plan = facts["plan"]
    yield plan["current_state"]
    texts = ["\n".join([*lines, ""]) for lines in (plan["document"], *plan["sections"])]
    for n, step in enumerate(parse_plan(texts[0], texts[1:]).steps, start=1):
        yield f"{n}. {step.title}: {step.before} → {step.after}"
        yield f"   do    {step.command}"
        yield f"   undo  {step.undo or step.no_undo_reason}"
    for note in plan["notes"]:
        yield f"note: {note}"
    yield f"digest {facts['digest']}"
    yield f"takes {facts['required_approvals']} approval of {facts['approvers']}"


def _approval(chat: Chat) -> tuple[str, tuple[str, str]] | None:
    buttons = chat.buttons()
    return next((item for item in buttons.items() if item[0].startswith("Approve")), None)


def _ended(service: Service, before: int) -> bool:
    with service.keyturn.database.reading() as tx:
        return any(
            entry.kind in {"succeeded", "failed", "unknown", "stale"}
            for entry in change_log.list_entries_after(tx, before)
        )


def _until(look: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + _PATIENCE
    while not (value := look()):
        if time.monotonic() > deadline:
            raise SystemExit(f"timed out after {_PATIENCE:.0f} s: {what}")
        time.sleep(0.02)
    return value


def _rows(table: str) -> str:
    return "\n".join(line for line in table.splitlines() if line.strip())


def _indented(text: str) -> str:
    return "\n".join(f"    {escape_control(line)}" for line in text.splitlines())


def _tick(holds: bool, claim: str) -> None:
    say(f"  {'✓' if holds else '✗'} {claim}")


def heading(text: str) -> None:
    say("\n" + bold(text))


def bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if _COLOURS else text


def dim(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m" if _COLOURS else text


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
