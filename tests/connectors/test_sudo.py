"""What sudo lets through: every command that needs root, and nothing that only looks like one."""

import hashlib
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast

import pytest

from bot.inventory import sudoers
from bot.inventory.sudoers import Grant
from connectors import (
    access_log,
    agents,
    allocator,
    apache,
    block,
    block_rule,
    bond,
    conntrack,
    csf,
    csf_grep,
    csf_list,
    disk_write,
    history,
    mail_queue,
    mounts,
    postfix,
    raid,
    rate_limit,
    shaping,
    systemd,
    zfs,
    zfs_property,
)
from connectors.command import Query, Setting, Shell
from connectors.inventory import Host
from connectors.shaping import Rates
from connectors.sudo import Fits, Several, SudoRule, TooLong
from connectors.zfs_property import Property
from runbooks import catalogue
from tests.fakes import ScriptedFleet, inventory_of
from tests.rules import DIALECTS, RULES, UNDECLARED, allowed, forgotten

QUEUE = block.Queue("sda", "bfq", ("bfq",), 128, 64, True, {"slice_idle": 8})
NO_DEPTH = block.Queue("nvme0n1", "none", ("none",), 128, None, False, {})
RULE_FILE = block_rule.file_of("sda", ("device/wwid", "naa.5000c500"))
SHARE = "rw=@192.0.2.0/24:[2001:db8::]/32:web1.example,no_subtree_check,sec=sys:krb5p,anonuid=7"
ON_TANK = Property("tank/a", "sync", "always", "received")


def _said_by_their_own_tests() -> Iterator[Shell | Query[Any]]:
    """Yield what the dialects' own tests name as FOR_ROOT."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if re.search(r"(?m)^FOR_ROOT", path.read_text()):
            yield from vars(import_module(f"{__package__}.{path.stem}"))["FOR_ROOT"]


# One or more of what each rule is for.
SAID: tuple[Shell | Query[Any], ...] = (
    *_said_by_their_own_tests(),
    *(access_log.traffic(hours=24, most=50), access_log.traffic(hours=1, most=1000)),
    *(agents.agents(), agents.refuse("C++ v1.0/Evil_Bot-2"), agents.admit("EvilBot")),
    *(apache.agents(), apache.refuse("C++ v1.0/Evil_Bot-2"), apache.admit("EvilBot")),
    *(allocator.processes("mysqld"), allocator.processes("a.b+c-d:e@f")),
    *(block.write("sda", "scheduler", "none"), block.write("sda", "iosched/slice_idle", 0)),
    *(block.restore(QUEUE), block.restore(NO_DEPTH)),
    *(block_rule.replace(RULE_FILE, ""), block_rule.replace(RULE_FILE, "x\n")),
    bond.bond_as_root("bond0.7"),
    conntrack.set_maximum(524288),
    *(csf.firewall(), csf_grep.found(ip_address("2001:db8::9"))),
    *(csf_list.begin_probation("x\n", restart="-r"), csf_list.load("x\n", restart="-r")),
    *(csf_list.begin_probation("x\n", restart="-sf"), csf_list.load("x\n", restart="-sf")),
    csf_list.keep("x\n"),
    *(disk_write.place("/etc"), disk_write.write("/etc", mib=64, seconds=300)),
    disk_write.forget(),
    history.sudo(datetime(2026, 1, 1, tzinfo=UTC)),
    mail_queue.queue(),
    postfix.queue(),
    mounts.exports(),
    raid.detail("md127"),
    *(rate_limit.limits(), rate_limit.counts()),
    shaping.begin_probation("eth0.7", Rates(1024, 512)),
    *(shaping.try_out("eth0", Rates(up=10_000_000)), shaping.settle("bond0", Rates())),
    shaping.keep("eth0"),
    *(systemd.restart("nginx"), systemd.restart("getty@tty1.service")),
    *(zfs.exact_status(), zfs.status(), zfs.plain_status(), zfs.spaces()),
    *(zfs.traffic("", 5), zfs.traffic("tank", 60)),
    *(zfs.start_scrub("tank"), zfs.stop_scrub("tank"), zfs.pause_scrub("tank")),
    zfs.stop_scrub_on_fuse("tank"),
    zfs_property.property_of("tank/a/b", "compression"),
    *(zfs_property.set_property("tank", "sync", "always"),),
    *(zfs_property.set_property("tank", "atime", "off"),),
    *(zfs_property.set_property("tank", "compression", "zstd-fast-100"),),
    *(zfs_property.set_property("tank", "sharenfs", SHARE),),
    *(zfs_property.set_property("tank", "sharenfs", "on"),),
    zfs_property.restore_property(ON_TANK),
    zfs_property.restore_property(Property("tank/a", "atime", "on", "default")),
)
COMMANDS = tuple(cast("Shell", each.command) if isinstance(each, Query) else each for each in SAID)
ALL = [rule for rules in RULES.values() for rule in rules]
INSTALLED = [rule.installed for rule in ALL]
NAMES = [f"{command.words[0]}-{number}" for number, command in enumerate(COMMANDS)]
SCRIPTS = [rule for rule in ALL if rule.script]
PARTING = pytest.mark.parametrize("rule", SCRIPTS, ids=lambda rule: str(rule.script)[:30])

# In the place of a word that may differ, or of a part of it.
HOSTILE = (
    *("", " ", "-", "--help", "-o", "..", "../../etc/shadow", "/etc/shadow", "a b", "a\nb", "a;b"),
    *(
        "$(id)",
        "`id`",
        "a|b",
        "a&b",
        "*",
        "?",
        "~",
        "\\",
        "'",
        '"',
        "é",
        "\x00",
        "a\tb",
        "#",
        "^$",
    ),
)
HOST = Host.model_validate(
    {
        **{"name": "h1", "address": "192.0.2.1", "user": "nobody", "area": "infra"},
        "host_key": inventory_of("h1")["h1"].host_key,
    }
)


def _words(command: Shell) -> tuple[str, ...]:
    return command.resolved({}, sudo=False).words


# By files, and by words where these are not too long for sudo.
GOOD = [
    *(command.resolved({}, sudo=True, scripts=True).words[3:] for command in COMMANDS),
    *(_words(command) for command in COMMANDS),
]


def _variants(command: Shell) -> Iterator[tuple[str, ...]]:
    """Yield commands that differ from a good one in one thing."""
    words = _words(command)
    for place in range(1, len(words)):
        for bad in HOSTILE:
            yield (*words[:place], bad, *words[place + 1 :])
            yield (*words[:place], words[place] + bad, *words[place + 1 :])
            yield (*words[:place], bad + words[place], *words[place + 1 :])
            yield (*words[:place], bad, *words[place:])
    for bad in HOSTILE:
        yield (*words, bad)
    yield ("/tmp/" + words[0], *words[1:])
    yield (words[0] + "x", *words[1:])
    yield words[:1]


# Appending these to some free word gives just another good one: a name may hold a hyphen, and a
# line of fstab any option. Nothing can be reached with it.
_ANOTHER_NAME = re.compile(r"-|--help|-o|\.\.", re.ASCII)
# A dataset's name has slashes and periods in it, and is no path; a directory's may be any.
_ANOTHER_DATASET = re.compile(r"[a-z./-]+", re.ASCII)


def _is_worse(command: Shell, variant: Sequence[str]) -> bool:
    """Tell whether a variant is more than another value of a word that may differ."""
    by_path = command.words[0] == "zfs" or "/etc" in command.words
    another = _ANOTHER_DATASET if by_path else _ANOTHER_NAME
    for good, bad in zip(_words(command), variant, strict=False):
        if good != bad:
            return not (bad.startswith(good) and another.fullmatch(bad.removeprefix(good)))
    return True


# --- what must be let through ---


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_a_command_that_needs_root_is_let_through(command: Shell):
    assert command.root
    assert allowed(command)
    words = command.resolved({}, sudo=True, scripts=True).words[3:]
    assert any(rule.allows(words, {}) for rule in INSTALLED)


@pytest.mark.parametrize("said", SAID, ids=NAMES)
def test_what_reads_is_known_from_what_changes(said: Shell | Query[Any]):
    command = cast("Shell", said.command) if isinstance(said, Query) else said
    meant = [rule for rule in ALL if rule.allows(_words(command), {})]
    assert {rule.reads for rule in meant} == {isinstance(said, Query)}


def test_no_rule_is_for_a_command_that_nobody_says():
    idle = [
        rule
        for rules in RULES.values()
        for rule in rules
        if not any(rule.allows(_words(command), {}) for command in COMMANDS)
    ]
    assert idle == []


def test_every_dialect_with_commands_for_root_has_rules():
    assert [dialect.__name__ for dialect in UNDECLARED] == []


def test_a_scripted_fleet_notices_a_command_whose_rule_was_forgotten():
    fleet = ScriptedFleet({("h1", "zpool scrub tank"): ""})
    fleet.tell("h1", zfs.start_scrub("tank"))
    unheard = Shell(("zpool", "destroy", "tank"), root=True)
    assert forgotten(unheard, {})
    with pytest.raises(AssertionError, match="declare a SudoRule"):
        fleet.tell("h1", unheard)


# --- what must not ---


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_what_only_looks_like_a_command_is_refused(command: Shell):
    words = _words(command)
    passed = [
        variant
        for variant in _variants(command)
        if variant != words
        and _is_worse(command, variant)
        and any(rule.allows(variant, {}) for rule in ALL)
        # Only parted differently: for sudo it is the same.
        and " ".join(variant) != " ".join(words)
    ]
    assert [_short(variant) for variant in passed if not _is_said(variant)] == []


def _is_said(variant: Sequence[str]) -> bool:
    """Tell whether a variant happens to be another command that runbooks say."""
    joined = " ".join(variant)
    return any(joined == " ".join(_words(command)) for command in COMMANDS)


def _short(words: Sequence[str]) -> list[str]:
    return [word[:60] for word in words]


@PARTING
def test_no_beginning_of_a_script_does_anything(rule: SudoRule):
    """sudo joins words with blanks, so the script could be parted at each of its own."""
    script = str(rule.script)
    cuts = [place for place, character in enumerate(script) if character == " "]
    longer = [f"{script} keyturn", f"{script} keyturn x"]
    for other in [*(script[:cut] for cut in cuts), *longer]:
        assert not _is_a_program(other), other
    assert _is_a_program(script)


def test_without_its_braces_a_script_could_be_cut_short():
    script = "cd /tmp; rm -f a; touch b"
    assert _is_a_program(script[: script.index(" touch")])
    assert _is_a_program(script + " keyturn x")


def _is_a_program(script: str) -> bool:
    checked = subprocess.run(["sh", "-n", "-c", script], capture_output=True, check=False)
    return checked.returncode == 0


COUNTING = pytest.mark.parametrize(
    "rule", [rule for rule in SCRIPTS if rule.script and rule.script.words], ids=repr
)


@COUNTING
def test_a_script_counts_its_words(rule: SudoRule, tmp_path: Path):
    """With `keyturn /etc/csf` as one word, the next one would be the directory to work in."""
    script = rule.script
    assert script is not None
    count = script.words or 0
    assert count == len(rule.words) - 3
    lure = tmp_path / ("a" * 64)
    lure.mkdir()
    file = tmp_path / "script"
    file.write_text(script.file)
    said = ("sh", "-c", script.text)
    for words in (
        *((*said, "keyturn /etc/csf", *[lure.name] * other) for other in (count - 1, count)),
        *((*said, "keyturn", *[lure.name] * other) for other in (count - 1, count + 1)),
        *(("sh", str(file), *[lure.name] * other) for other in (count - 1, count + 1)),
    ):
        assert subprocess.run(words, cwd=tmp_path, check=False).returncode == 1
    assert list(lure.iterdir()) == []


def test_without_counting_its_words_it_would_work_elsewhere(tmp_path: Path):
    script = str(csf_list.SUDO[4].script).replace('[ "$0 $#" = "keyturn 2" ] || exit;', "")
    (tmp_path / ("a" * 64)).mkdir()
    subprocess.run(["sh", "-c", script, "keyturn /etc/csf", "a" * 64], cwd=tmp_path, check=False)
    assert [file.name for file in tmp_path.rglob("*lock")] == ["keyturn.lock"]


@PARTING
def test_a_script_is_the_same_file_wherever_it_lies(rule: SudoRule):
    assert rule.script is not None
    assert re.fullmatch(r"/usr/local/lib/keyturn/[a-z-]+-[0-9a-f]{12}", rule.script.path)
    assert rule.installed.program == rule.script.path
    assert replace(rule.script, body=f"{rule.script.body} ").path != rule.script.path
    checked = subprocess.run(["sh", "-n"], input=rule.script.file.encode(), check=False)
    assert checked.returncode == 0


# --- what a script takes in ---


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (block_rule.text_of("sda", None, {"scheduler": "bfq"}), True),
        (block_rule.text_of("sda", ("device/wwid", "naa.5"), {"iosched/slice_idle": 0}), True),
        ('ACTION=="add|change", RUN+="/bin/sh -c id"\n', False),
        (block_rule.text_of("sda", None, {"scheduler": "bfq"})[:-1] + ', RUN+="/bin/id"\n', False),
        (block_rule.text_of("sda", None, {"scheduler": "bfq"}) + 'RUN+="/bin/id"', False),
        (block_rule.text_of("sda", None, {"scheduler": "bfq"}) + "\0", False),
        (
            block_rule.text_of("sda", None, {"scheduler": "bfq"}).replace(
                "queue/scheduler", "../../../etc/passwd"
            ),
            False,
        ),
    ],
)
def test_a_host_takes_no_rule_of_udev_that_runs_a_program(given: str, taken: bool, tmp_path: Path):
    script = block_rule.SUDO[1].script
    assert script is not None
    assert _taken(script.text, given, tmp_path) == taken


def test_without_looking_a_host_would_take_any_rule_of_udev(tmp_path: Path):
    look = '[ "$other" = 1 ] || { echo this is no rule of Keyturn >&2; exit 1; };'
    script = str(block_rule.SUDO[1].script).replace(look, "")
    assert _taken(script, 'RUN+="/bin/id"\n', tmp_path)


def _taken(script: str, given: str, directory: Path) -> bool:
    file = directory / "60-keyturn-sda.rules"
    words = ["sh", "-c", script, "keyturn", str(file)]
    done = subprocess.run(words, input=given, text=True, capture_output=True, check=False)
    assert list(directory.iterdir()) == ([file] if done.returncode == 0 else [])
    return done.returncode == 0 and file.read_text() == given


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        ("192.0.2.1 # pingdom", True),
        ("2001:db8::1 # pingdom", True),
        ("Include /etc/shadow", False),
        ("192.0.2.0/1 # pingdom", False),
        ("tcp|in|d=22|s=192.0.2.1 # pingdom", False),
    ],
)
def test_a_host_takes_no_list_that_does_more_than_let_addresses_in(
    line: str, taken: bool, tmp_path: Path
):
    script = csf_list.SUDO[2].script
    assert script is not None
    listing = csf_list.listing((), "pingdom") + f"{line}\n"
    digest = hashlib.sha256(listing.encode()).hexdigest()
    words = ["sh", "-c", script.text, "keyturn", str(tmp_path), "true", "-r", digest]
    done = subprocess.run(words, input=listing, text=True, capture_output=True, check=False)
    assert done.returncode == 1
    # What is taken comes as far as the question whether it is on probation.
    said = "nothing is on probation" if taken else "this is no list of Keyturn"
    assert said in done.stderr


# --- how rules are written ---


@pytest.mark.parametrize(
    "pattern",
    [
        *(".", ".*", "[^/]+", r"\w+", r"\d", r"\S+", "a b", "[ -~]+", "(?:a)", "(?!a)b", "a|", ""),
        *("-[a-z]", "[a-z-]*", "é+", "[[:alpha:]]+", "a\n", "$", "^a", "[a-z", "a{2"),
    ],
)
def test_a_pattern_that_would_take_more_than_it_says_is_refused(pattern: str):
    for kind in cast("tuple[Callable[[str], object], ...]", (Fits, Several)):
        with pytest.raises((ValueError, re.error)):
            kind(pattern)


def test_words_are_meant_as_they_stand():
    rule = SudoRule("/usr/bin/echo", "a.b*c[d]^$|(e){f}+?\\#", Setting("x", "y"), Fits("[0-9]+"))
    assert rule.allows(("echo", "a.b*c[d]^$|(e){f}+?\\#", "z.", "7"), {"x": "z."})
    assert not rule.allows(("echo", "axb*c[d]^$|(e){f}+?\\#", "z.", "7"), {"x": "z."})
    assert not rule.allows(("echo", "a.b*c[d]^$|(e){f}+?\\#", "zz", "7"), {"x": "z."})


@pytest.mark.parametrize("program", ["zpool", "/usr/sbin/*", "", "/usr/bin/a b", "/a,/b"])
def test_a_program_is_named_by_its_whole_path(program: str):
    with pytest.raises(ValueError, match="no absolute path"):
        SudoRule(program)


# --- what the real sudo makes of it ---


@pytest.fixture(scope="module")
def private_sudoers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a script that asks the real sudo, with our rules as the only ones.

    It reads words, each ended by a NUL and each command by an empty word, and prints the status
    of `sudo -l` for each command. The programs are stubs, since few hosts have all of them.
    """
    probe = ["unshare", "-m", "mount", "--bind", "/dev/null", "/etc/sudoers"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("only root may hold rules against sudo without changing this machine's own")
    directory = tmp_path_factory.mktemp("sudo")
    stubs = [
        Grant("stubs", SudoRule(f"{directory}/{Path(str(rule.program)).name}", *rule.words), ())
        for rule in (*ALL, *INSTALLED)
    ]
    written = sudoers.text(HOST, stubs)
    (directory / "sudoers").write_text(written)
    for words in GOOD:
        stub = directory / Path(words[0]).name
        stub.write_text("#!/bin/sh\necho ran as $(id -u)\n")
        stub.chmod(0o755)
    asking = directory / "ask.sh"
    asking.write_text(
        f"mount --bind {directory}/sudoers /etc/sudoers || exit 9\n"
        "mount -t tmpfs none /etc/sudoers.d || exit 9\n"
        'exec bash -c \'words=(); while IFS= read -r -d "" word; do '
        'if [ "$word" != END ]; then words+=("$word"); continue; fi; '
        'sudo -n -l -U nobody -- "${words[@]}" >/dev/null 2>&1; echo $?; words=(); done\'\n'
    )
    return asking


def _statuses(asking: Path, commands: Sequence[Sequence[str]]) -> list[int]:
    # Root asks on behalf of somebody, and would be told of a program in its own path.
    whole = [[str(asking.parent / Path(words[0]).name), *words[1:]] for words in commands]
    told = "".join("\0".join([*words, "END"]) + "\0" for words in whole)
    done = subprocess.run(
        ["unshare", "-m", "sh", str(asking)],
        input=told,
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(line) for line in done.stdout.splitlines()]


@pytest.mark.real
@pytest.mark.parametrize("rules", [ALL, INSTALLED], ids=["by words", "by files"])
def test_visudo_takes_every_rule(rules: Sequence[SudoRule], tmp_path: Path):
    lines = sudoers.text(HOST, [Grant("all", rule, ()) for rule in rules])
    (tmp_path / "sudoers").write_text(lines)
    checked = subprocess.run(
        ["visudo", "-cf", str(tmp_path / "sudoers")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert lines.count("NOPASSWD") == len(rules) - sum(map(_too_long, rules))
    assert not any(map(_too_long, INSTALLED))


def _too_long(rule: SudoRule) -> bool:
    try:
        rule.line("nobody", {})
    except TooLong:
        return True
    return False


@pytest.mark.real
def test_sudo_itself_judges_as_we_do(private_sudoers: Path):
    rules = [rule for rule in (*ALL, *INSTALLED) if not _too_long(rule)]
    good = [words for words in GOOD if any(rule.allows(words, {}) for rule in rules)]
    bad = [
        variant
        for command in COMMANDS
        for variant in list(_variants(command))[::97]
        if "\x00" not in "".join(variant) and variant[0] in {words[0] for words in good}
    ]
    bad += [
        (*words[:place], worse, *words[place + 1 :])
        for words in GOOD[: len(COMMANDS)]
        for place in range(1, len(words))
        for worse in ("", "a b", "../../etc/shadow", f"{words[place]} x", f"x{words[place]}")
    ]
    bad += [(words[0][:-1], *words[1:]) for words in good if words[0].startswith("/")]
    ours = [any(rule.allows(words, {}) for rule in rules) for words in bad]
    assert _statuses(private_sudoers, good) == [0] * len(good)
    theirs = [status == 0 for status in _statuses(private_sudoers, bad)]
    differing = [
        _short(words) for words, we, they in zip(bad, ours, theirs, strict=True) if we != they
    ]
    assert len(bad) > 100
    assert ours.count(False) > 80
    assert differing == []


def test_the_rules_of_a_runbook_are_those_of_the_dialects_that_it_speaks():
    meant = {words: catalogue()[words] for words in ("zfs scrub start", "abusers show")}
    granted = sudoers.grants(meant)
    assert {grant.dialect for grant in granted} == {"zfs"}
    assert {grant.runbooks for grant in granted} == {("zfs scrub start",)}
    assert sudoers.grants({"abusers show": catalogue()["abusers show"]}) == ()
    assert len(DIALECTS) > len(RULES)
