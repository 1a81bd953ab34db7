"""The sudo rules allow every command that needs root, and none of its variants."""

import hashlib
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from importlib import import_module
from ipaddress import ip_address
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from bot.hosts import sudo_rules
from bot.hosts.sudo_rules import SudoGrant
from connectors import (
    access_log,
    allocator,
    apache_agents,
    block,
    block_rule,
    bond,
    conntrack,
    csf,
    csf_grep,
    csf_list,
    disk_write,
    exim,
    haproxy,
    hidepid,
    history,
    mounts,
    nginx_agents,
    postfix,
    raid,
    rate_limit,
    shaping,
    signed_files,
    systemd,
    zfs,
    zfs_property,
)
from connectors.command import Query, Setting, Shell
from connectors.inventory import Host
from connectors.script import Script
from connectors.shaping import Rates
from connectors.signed_files import SignedFiles
from connectors.sudo import (
    ADDRESS,
    RepeatedPattern,
    RuleTooLongError,
    SudoRule,
    WordPattern,
    make_example,
    make_range_pattern,
)
from connectors.zfs_property import ZfsProperty
from runbooks import load_catalogue
from tests.campaigns import CHAOS
from tests.scripted_fleet import ScriptedFleet, build_inventory
from tests.sudo_rules import DIALECTS, RULES, is_allowed, is_without_rule, list_undeclared_programs

QUEUE = block.BlockQueue("sda", "bfq", ("bfq",), 128, 64, True, {"slice_idle": 8})
NO_DEPTH = block.BlockQueue("nvme0n1", "none", ("none",), 128, None, False, {})
RULE_FILE = block_rule.make_rule_path("sda", ("device/wwid", "naa.5000c500"))
SHARE = "rw=@192.0.2.0/24:[2001:db8::]/32:web1.example,no_subtree_check,sec=sys:krb5p,anonuid=7"
ON_TANK = ZfsProperty("tank/a", "sync", "always", "received")


def _list_commands_of_connector_tests() -> Iterator[Shell | Query[Any]]:
    """Yield the commands in FOR_ROOT of the connectors' own tests."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if re.search(r"(?m)^FOR_ROOT", path.read_text()):
            yield from vars(import_module(f"{__package__}.{path.stem}"))["FOR_ROOT"]


# One or more of what each rule is for.
RUNBOOK_COMMANDS: tuple[Shell | Query[Any], ...] = (
    *_list_commands_of_connector_tests(),
    *(
        access_log.query_traffic(hours=48, max_rows=25),
        access_log.query_traffic(hours=1, max_rows=1),
    ),
    *(
        nginx_agents.query_agents(),
        nginx_agents.block_agent("C++ v1.0/Evil_Bot-2"),
        nginx_agents.unblock_agent("EvilBot"),
    ),
    *(
        apache_agents.query_agents(),
        apache_agents.block_agent("C++ v1.0/Evil_Bot-2"),
        apache_agents.unblock_agent("EvilBot"),
    ),
    *(allocator.query_processes("mysqld"), allocator.query_processes("a.b+c-d:e@f")),
    *(
        block.set_queue_setting("sda", "scheduler", "none"),
        block.set_queue_setting("sda", "iosched/slice_idle", 0),
    ),
    *(block.restore_queue(QUEUE), block.restore_queue(NO_DEPTH)),
    *(block_rule.replace_rule(RULE_FILE, ""), block_rule.replace_rule(RULE_FILE, "x\n")),
    bond.query_bond_as_root("bond0.7"),
    *(conntrack.set_maximum(524288), conntrack.keep_maximum(524288), conntrack.keep_maximum(None)),
    *(csf.query_firewall(), csf_grep.query_matches(ip_address("2001:db8::9"))),
    *(csf_list.load_list("x\n", restart="-r"), csf_list.load_list("x\n", restart="-sf")),
    *(disk_write.query_directory("/etc"), disk_write.write_test_file("/etc", mib=64, seconds=300)),
    disk_write.delete_result(),
    history.query_sudo(datetime(2026, 1, 1, tzinfo=UTC)),
    history.query_journal_logins(datetime(2026, 1, 1, tzinfo=UTC)),
    Query(cast("Shell", haproxy.query_peers().command).for_enrolled_host, str),
    exim.query_queue(),
    *(exim.remove_messages(["1xUjtg-00023k-1P"]), exim.retry_message("1xUjtg-00023k-1P")),
    postfix.query_queue(),
    *(postfix.remove_messages(["99AFC99FD66"]), postfix.retry_message("99AFC99FD66")),
    mounts.query_exports(),
    raid.query_detail("md127"),
    *(rate_limit.query_limits(), rate_limit.query_counts()),
    *(shaping.try_limits("eth0", Rates(up=10_000_000)), shaping.try_limits("bond0", Rates())),
    signed_files.write_files(SignedFiles("olga ssh-ed25519 AAAA\n", "floor 1\n")),
    *(systemd.control_service("restart", name) for name in ("nginx", "getty@tty1.service")),
    *(systemd.control_service(verb, "nginx") for verb in ("reload", "start", "stop")),
    systemd.query_journal("nginx"),
    *(systemd.query_configuration(name) for name in systemd.TESTED_SERVICES),
    *(zfs.query_json_status(), zfs.query_status(), zfs.query_plain_status(), zfs.query_spaces()),
    *(zfs.query_traffic("", 5), zfs.query_traffic("tank", 60)),
    *(zfs.start_scrub("tank"), zfs.stop_scrub("tank"), zfs.pause_scrub("tank")),
    zfs.stop_scrub_on_fuse("tank"),
    zfs_property.query_property("tank/a/b", "compression"),
    *(zfs_property.set_property("tank", "sync", "always"),),
    *(zfs_property.set_property("tank", "atime", "off"),),
    *(zfs_property.set_property("tank", "compression", "zstd-fast-100"),),
    *(zfs_property.set_property("tank", "sharenfs", SHARE),),
    *(zfs_property.set_property("tank", "sharenfs", "on"),),
    zfs_property.query_property("tank", "quota"),
    *(zfs_property.set_property("tank", name, "500G") for name in ("quota", "refquota")),
    zfs_property.restore_property(ON_TANK),
    zfs_property.restore_property(ZfsProperty("tank/a", "atime", "on", "default")),
)
COMMANDS = tuple(
    cast("Shell", each.command) if isinstance(each, Query) else each for each in RUNBOOK_COMMANDS
)
ALL = [rule for rules in RULES.values() for rule in rules]
INSTALLED = [rule.for_installed_scripts for rule in ALL]
NAMES = [f"{command.words[0]}-{number}" for number, command in enumerate(COMMANDS)]
SCRIPTS = [rule for rule in ALL if rule.script]
PARTING = pytest.mark.parametrize("rule", SCRIPTS, ids=lambda rule: str(rule.script)[:30])

# In the place of a word that may differ, or of a part of it. `make chaos` tries all; `make test`
# a blank, an option, a path, what a shell acts on, a line end and a NUL.
_ALL_HOSTILE = (
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
_SAMPLE = ("", "--help", "../../etc/shadow", "a b", "a\nb", "$(id)", "*", "\x00")
HOSTILE = _ALL_HOSTILE if CHAOS else _SAMPLE
# So many commands are judged by one shell after the other, and by so many shells at once.
_BATCH, _AT_ONCE = 25, 4
# Every so many variants are tried on sudo itself.
_EVERY = 700 if CHAOS else 250
HOST = Host.model_validate(
    {
        **{"name": "h1", "address": "192.0.2.1", "user": "nobody", "area": "infra"},
        "host_key": build_inventory("h1")["h1"].host_key,
    }
)


@cache
def _get_words(command: Shell) -> tuple[str, ...]:
    return command.resolve({}, sudo=False).words


@cache
def _list_rules(program: str) -> list[SudoRule]:
    """Return the rules for a program of this name, in whatever directory it is."""
    name = Path(program).name
    return [rule for rule in ALL if name in {Path(path).name for path in rule.list_paths({})}]


# By files, and by words where these are not too long for sudo.
GOOD = [
    *(command.resolve({}, sudo=True, scripts=True).words[3:] for command in COMMANDS),
    *(_get_words(command) for command in COMMANDS),
]


def _list_variants(command: Shell) -> Iterator[tuple[str, ...]]:
    """Yield variants of a command that differ from it in one word."""
    words = _get_words(command)
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
    """Return whether a variant is more than another value of a variable word."""
    by_path = command.words[0] == "zfs" or "/etc" in command.words
    another = _ANOTHER_DATASET if by_path else _ANOTHER_NAME
    for good, bad in zip(_get_words(command), variant, strict=False):
        if good != bad:
            return not (bad.startswith(good) and another.fullmatch(bad.removeprefix(good)))
    return True


# --- what must be let through ---


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_sudo_rules_allow_every_root_command(command: Shell):
    assert command.root
    assert is_allowed(command)
    words = command.resolve({}, sudo=True, scripts=True).words[3:]
    assert any(rule.is_allowed(words, {}) for rule in INSTALLED)


@pytest.mark.parametrize("printed", RUNBOOK_COMMANDS, ids=NAMES)
def test_sudo_rules_distinguish_queries_from_changes(printed: Shell | Query[Any]):
    command = cast("Shell", printed.command) if isinstance(printed, Query) else printed
    meant = [rule for rule in ALL if rule.is_allowed(_get_words(command), {})]
    assert {rule.read_only for rule in meant} == {isinstance(printed, Query)}


def test_sudo_rules_have_no_rule_without_a_command():
    idle = [
        rule
        for rules in RULES.values()
        for rule in rules
        if not any(rule.is_allowed(_get_words(command), {}) for command in COMMANDS)
    ]
    assert idle == []


@pytest.mark.parametrize("rule", [*ALL, *INSTALLED], ids=repr)
def test_sudo_rule_allows_its_own_example(rule: SudoRule):
    assert rule.is_allowed(rule.make_example({}), {})


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("[0-9]+", "0"),
        ("(ab|c)?d{2,4}", "dd"),
        (r"a\.b*|c", "a."),
        ("[ A-Z]{3}", "AAA"),
        ("(x(y|z)){2}", "xyxy"),
    ],
)
def test_example_of_a_sudo_pattern_is_generated(pattern: str, text: str):
    assert make_example(pattern) == text


def test_every_connector_with_root_commands_declares_sudo_rules():
    assert list_undeclared_programs() == []


def test_scripted_fleet_fails_on_a_root_command_without_a_sudo_rule():
    fleet = ScriptedFleet({("h1", "zpool scrub tank"): ""})
    fleet.run_command("h1", zfs.start_scrub("tank"))
    undeclared = Shell(("zpool", "destroy", "tank"), root=True)
    assert is_without_rule(undeclared, {})
    with pytest.raises(AssertionError, match="declare a SudoRule"):
        fleet.run_command("h1", undeclared)


# --- what must not ---


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_sudo_rules_refuse_variants_of_a_root_command(command: Shell):
    words = _get_words(command)
    passed = [
        variant
        for variant in _list_variants(command)
        if variant != words
        and _is_worse(command, variant)
        and any(rule.is_allowed(variant, {}) for rule in _list_rules(variant[0]))
        # Only parted differently: for sudo it is the same.
        and " ".join(variant) != " ".join(words)
    ]
    assert [_shorten(variant) for variant in passed if not _is_runbook_command(variant)] == []


def _is_runbook_command(variant: Sequence[str]) -> bool:
    """Return whether a variant is another command of the runbooks."""
    joined = " ".join(variant)
    return any(joined == " ".join(_get_words(command)) for command in COMMANDS)


def _shorten(words: Sequence[str]) -> list[str]:
    return [word[:60] for word in words]


@PARTING
def test_sudo_script_cut_at_any_word_has_invalid_syntax(rule: SudoRule):
    """sudo joins words with blanks, so the script could be split at each of its blanks.

    A script can only end where a bracket is closed, so a sample of the other blanks is enough.
    """
    script = str(rule.script)
    blanks = [place for place, character in enumerate(script) if character == " "]
    cuts = {*(place for place in blanks if script[place - 1] in "};)"), *blanks[::40]}
    longer = [f"{script} keyturn", f"{script} keyturn x"]
    assert _find_programs(*(script[:cut] for cut in cuts), *longer, script) == [script]


def test_without_its_braces_a_sudo_script_could_be_cut_short():
    script = "cd /tmp; rm -f a; touch b"
    others = (script[: script.index(" touch")], script + " keyturn x")
    assert _find_programs(*others) == [*others]


def _find_programs(*scripts: str) -> list[str]:
    """Return the scripts whose shell syntax is complete."""
    check = (
        'for script; do sh -n -c "$script" 2>/dev/null && printf "%s\\0" "$script"; done; exit 0'
    )
    checked = subprocess.run(
        ["sh", "-c", check, "check", *scripts], capture_output=True, text=True, check=True
    )
    return checked.stdout.split("\0")[:-1]


COUNTING = pytest.mark.parametrize(
    "rule", [rule for rule in SCRIPTS if rule.script and rule.script.argument_count], ids=repr
)


@COUNTING
def test_sudo_script_refuses_another_number_of_arguments(rule: SudoRule, tmp_path: Path):
    """With `keyturn /etc/csf` as one word, the next one would be the directory to work in."""
    script = rule.script
    assert script is not None
    count = script.argument_count or 0
    assert count == len(rule.words) - 3
    lure = tmp_path / ("a" * 64)
    lure.mkdir()
    file = tmp_path / "script"
    file.write_text(script.file_text)
    script_words = ("sh", "-c", script.text)
    for words in (
        *(
            (*script_words, "keyturn /etc/csf", *[lure.name] * other)
            for other in (count - 1, count)
        ),
        *((*script_words, "keyturn", *[lure.name] * other) for other in (count - 1, count + 1)),
        *(("sh", str(file), *[lure.name] * other) for other in (count - 1, count + 1)),
    ):
        assert subprocess.run(words, cwd=tmp_path, check=False).returncode == 1
    assert list(lure.iterdir()) == []


def test_without_the_argument_count_a_sudo_script_works_in_another_directory(tmp_path: Path):
    counted = str(_get_script(csf_list, "csf-load"))
    script = counted.replace('[ "$0 $#" = "keyturn 5" ] || exit;', "")
    assert script != counted
    (tmp_path / ("a" * 64)).mkdir()
    words = ("keyturn /", "/etc/csf", "a" * 64, "-r", "a" * 64)
    subprocess.run(["sh", "-c", script, *words], cwd=tmp_path, input=b"", check=False)
    assert [file.name for file in tmp_path.rglob("keyturn.*")] == ["keyturn.new"]


@PARTING
def test_sudo_script_is_installed_under_the_hash_of_its_text(rule: SudoRule):
    assert rule.script is not None
    assert re.fullmatch(r"/usr/local/lib/keyturn/[a-z-]+-[0-9a-f]{12}", rule.script.path)
    assert rule.for_installed_scripts.program == rule.script.path
    assert replace(rule.script, code=f"{rule.script.code} ").path != rule.script.path
    checked = subprocess.run(["sh", "-n"], input=rule.script.file_text.encode(), check=False)
    assert checked.returncode == 0


# --- what a script takes in ---


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (block_rule.format_rule("sda", None, {"scheduler": "bfq"}), True),
        (block_rule.format_rule("sda", ("device/wwid", "naa.5"), {"iosched/slice_idle": 0}), True),
        ('ACTION=="add|change", RUN+="/bin/sh -c id"\n', False),
        (
            block_rule.format_rule("sda", None, {"scheduler": "bfq"})[:-1] + ', RUN+="/bin/id"\n',
            False,
        ),
        (block_rule.format_rule("sda", None, {"scheduler": "bfq"}) + 'RUN+="/bin/id"', False),
        (block_rule.format_rule("sda", None, {"scheduler": "bfq"}) + "\0", False),
        (
            block_rule.format_rule("sda", None, {"scheduler": "bfq"}).replace(
                "queue/scheduler", "../../../etc/passwd"
            ),
            False,
        ),
    ],
)
def test_sudo_script_refuses_a_udev_rule_that_runs_a_program(
    given: str, taken: bool, tmp_path: Path
):
    script = block_rule.SUDO[0].script
    assert script is not None
    assert _is_rule_accepted(script.text, given, tmp_path) == taken


def test_without_the_content_check_the_sudo_script_writes_any_udev_rule(tmp_path: Path):
    look = '[ "$other" = 1 ] || { echo this is not a rule of Keyturn >&2; exit 1; };'
    script = str(block_rule.SUDO[0].script).replace(look, "")
    assert _is_rule_accepted(script, 'RUN+="/bin/id"\n', tmp_path)


def _is_rule_accepted(script: str, given: str, directory: Path) -> bool:
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
def test_sudo_script_refuses_a_csf_list_with_other_lines_than_addresses(
    line: str, taken: bool, tmp_path: Path
):
    script = _get_script(csf_list, "csf-load")
    listing = csf_list.format_list((), "pingdom") + f"{line}\n"
    digest = hashlib.sha256(listing.encode()).hexdigest()
    words = ["sh", "-c", script.text, "keyturn", "/", str(tmp_path), "true", "-r", digest]
    done = subprocess.run(words, input=listing, text=True, capture_output=True, check=False)
    assert done.returncode == 1
    # What is taken comes as far as the question whether it is on probation.
    message = "nothing is on probation" if taken else "this is not a list of Keyturn"
    assert message in done.stderr


# --- how rules are written ---


@pytest.mark.parametrize(
    "pattern",
    [
        *(".", ".*", "[^/]+", r"\w+", r"\d", r"\S+", "a b", "[ -~]+", "(?:a)", "(?!a)b", "a|", ""),
        *("-[a-z]", "[a-z-]*", "é+", "[[:alpha:]]+", "a\n", "$", "^a", "[a-z", "a{2"),
    ],
)
def test_sudo_pattern_that_is_too_wide_is_refused(pattern: str):
    for kind in cast("tuple[Callable[[str], object], ...]", (WordPattern, RepeatedPattern)):
        with pytest.raises((ValueError, re.error)):
            kind(pattern)


def test_sudo_pattern_allows_a_version_of_debian():
    rule = SudoRule("/usr/bin/apt-get", WordPattern("[a-z0-9][a-z0-9.+:~-]*", prefix="app="))
    assert rule.is_allowed(("apt-get", "app=1:2.0~rc1+b-1"), {})
    assert not rule.is_allowed(("apt-get", "app=~1"), {})


def test_words_of_a_sudo_rule_are_matched_literally():
    rule = SudoRule(
        "/usr/bin/echo", "a.b*c[d]^$|(e){f}+?\\#", Setting("x", "y"), WordPattern("[0-9]+")
    )
    assert rule.is_allowed(("echo", "a.b*c[d]^$|(e){f}+?\\#", "z.", "7"), {"x": "z."})
    assert not rule.is_allowed(("echo", "axb*c[d]^$|(e){f}+?\\#", "z.", "7"), {"x": "z."})
    assert not rule.is_allowed(("echo", "a.b*c[d]^$|(e){f}+?\\#", "zz", "7"), {"x": "z."})


@pytest.mark.parametrize("program", ["zpool", "/usr/sbin/*", "", "/usr/bin/a b", "/a,/b"])
def test_sudo_rule_requires_the_absolute_path_of_its_program(program: str):
    with pytest.raises(ValueError, match="not the absolute path"):
        SudoRule(program)


# --- what the real sudo makes of it ---


@pytest.fixture(scope="module")
def private_sudoers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a script that queries the real sudo with only Keyturn's rules.

    It reads words, each ended by a NUL and each command by an empty word, and prints the status
    of `sudo -l` for each command. The programs are stubs, since few hosts have all of them.
    """
    probe = ["unshare", "-m", "mount", "--bind", "/dev/null", "/etc/sudoers"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("only root may hold rules against sudo without changing this machine's own")
    directory = tmp_path_factory.mktemp("sudo")
    stubs = [
        SudoGrant(
            "stubs", SudoRule(f"{directory}/{Path(str(rule.program)).name}", *rule.words), ()
        )
        for rule in (*ALL, *INSTALLED)
    ]
    written = sudo_rules.format_sudoers(HOST, stubs)
    (directory / "sudoers").write_text(written)
    for words in GOOD:
        stub = directory / Path(words[0]).name
        stub.write_text("#!/bin/sh\necho ran as $(id -u)\n")
        stub.chmod(0o755)
    sudo_script = directory / "ask.sh"
    sudo_script.write_text(
        f"mount --bind {directory}/sudoers /etc/sudoers || exit 9\n"
        "mount -t tmpfs none /etc/sudoers.d || exit 9\n"
        'exec bash -c \'words=(); while IFS= read -r -d "" word; do '
        'if [ "$word" != END ]; then words+=("$word"); continue; fi; '
        'sudo -n -l -U nobody -- "${words[@]}" >/dev/null 2>&1; echo $?; words=(); done\'\n'
    )
    return sudo_script


def _query_sudo(sudo_script: Path, commands: Sequence[Sequence[str]]) -> list[int]:
    # sudo mostly waits, so that several shells are asked at once.
    batches = [commands[n : n + _BATCH] for n in range(0, len(commands), _BATCH)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        batches_run = pool.map(partial(_query_sudo_batch, sudo_script), batches)
        return [status for batch in batches_run for status in batch]


def _query_sudo_batch(sudo_script: Path, commands: Sequence[Sequence[str]]) -> list[int]:
    # Root asks on behalf of somebody, and would be told of a program in its own path.
    whole = [[str(sudo_script.parent / Path(words[0]).name), *words[1:]] for words in commands]
    script_input = "".join("\0".join([*words, "END"]) + "\0" for words in whole)
    done = subprocess.run(
        ["unshare", "-m", "sh", str(sudo_script)],
        input=script_input,
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(line) for line in done.stdout.splitlines()]


@pytest.mark.real
@pytest.mark.parametrize("rules", [ALL, INSTALLED], ids=["by words", "by files"])
def test_visudo_accepts_every_sudo_rule(rules: Sequence[SudoRule], tmp_path: Path):
    lines = sudo_rules.format_sudoers(HOST, [SudoGrant("all", rule, ()) for rule in rules])
    (tmp_path / "sudoers").write_text(lines)
    checked = subprocess.run(
        ["visudo", "-cf", str(tmp_path / "sudoers")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert lines.count("NOPASSWD") == len(rules) - sum(map(_is_too_long, rules))
    assert not any(map(_is_too_long, INSTALLED))


def _is_too_long(rule: SudoRule) -> bool:
    try:
        rule.format_line("nobody", {})
    except RuleTooLongError:
        return True
    return False


@pytest.mark.real
def test_sudo_program_agrees_with_the_sudo_rules(private_sudoers: Path):
    rules = [rule for rule in (*ALL, *INSTALLED) if not _is_too_long(rule)]
    good = [words for words in GOOD if any(rule.is_allowed(words, {}) for rule in rules)]
    bad = [*_list_worse_commands({words[0] for words in good})]
    ours = [any(rule.is_allowed(words, {}) for rule in rules) for words in bad]
    assert ours.count(False) > 150
    assert _query_sudo(private_sudoers, good) == [0] * len(good)
    theirs = [status == 0 for status in _query_sudo(private_sudoers, bad)]
    differing = [
        _shorten(words) for words, we, they in zip(bad, ours, theirs, strict=True) if we != they
    ]
    assert differing == []


def _list_worse_commands(programs: set[str]) -> Iterator[tuple[str, ...]]:
    """Yield a sample of variants that must be refused: sudo is slow."""
    for number, command in enumerate(COMMANDS):
        for variant in list(_list_variants(command))[number % _EVERY :: _EVERY]:
            if "\x00" not in "".join(variant) and variant[0] in programs:
                yield variant
    for number, words in enumerate(GOOD):
        program, *rest = words
        if rest:
            place = number % len(rest)
            rest[place] = ("", "../../etc/shadow", f"{rest[place]} x")[number % 3]
            yield (program, *rest)
        elif program.startswith("/"):
            yield (program[:-1],)


# What no runbook says, since its own fields or its own checks refuse it: by words, or by the name
# of a script and its arguments.
_MAX = "net.netfilter.nf_conntrack_max"
_UNIT_SETTINGS = ("/etc/haproxy/haproxy.cfg", "/etc/nginx/nginx.conf", "apachectl")
_REFUSED_ANYWHERE: tuple[tuple[str, ...], ...] = (
    *(
        ("sysctl", "-w", f"{_MAX}={value}")
        for value in ("0", "1", "0001", "4095", "04096", "16777217", "99999999", "4096 a=1", "-1")
    ),
    ("sysctl", "-w", "kernel.panic=4096"),
    ("sysctl", "-w", f"{_MAX}=4096", "kernel.panic=1"),
    *(
        ("systemctl", "restart", "--no-ask-password", "--", f"{unit}.service")
        for unit in ("nginx", "ssh", "systemd-networkd")
    ),
    *(("systemctl", verb, "--", "nginx.service") for verb in ("stop", "start", "mask", "kill")),
    ("tee", "--", "/sys/block/sda/queue/scheduler"),
    *(
        ("block-set", "sda", pair)
        for pair in (
            *("nr_requests=3", "nr_requests=10241", "read_ahead_kb=65537", "scheduler=mine"),
            *("iosched/slice_idle=101", "iosched/../../ro=1", "read_only=1", "nr_requests="),
        )
    ),
    ("block-set", "../../etc", "nr_requests=64"),
    ("rm", "-f", "--", "/etc/udev/rules.d/60-keyturn-sda.rules"),
    *(("block-rule", f"/etc/udev/rules.d/{name}") for name in ("60-x.rules", "99-local.rules")),
    *(("csf", "-g", given) for given in ("1:2:3", "...", "1.2.3", "256.1.1.1", "1::2::3", "fe80")),
    *(("csf", option) for option in ("-f", "-x", "-r", "-e", "-tf", "-ra")),
    *(("disk-write-try", "/srv", mib) for mib in ("0", "3", "1025", "9999", "04")),
    *(
        ("disk-write-try", place, "64")
        for place in ("/", "/srv/../etc", "/" + "x" * 65, "/x" * 11)
    ),
    ("mount", "-o", "remount,hidepid=3", "/proc"),
    ("mount", "-o", "remount,hidepid=2,ro", "/proc"),
    ("mount", "-o", "remount,hidepid=2", "/"),
    *(("hidepid-fstab", options) for options in ("a b", "-x", "", "a|b")),
    *(("hidepid-add", f"proc /proc proc {options} 0 0") for options in ("ro", "hidepid=9", "rw")),
    ("hidepid-add", "/dev/sda1 / ext4 defaults 0 0"),
    *(("shaping-try", "eth0", rate, "0") for rate in ("1", "255", "10000001", "0256", "00")),
    *(("shaping-try", "eth0", "0", rate) for rate in ("1", "64", "99999999")),
    *(("access-log", hours, "25") for hours in ("0", "49", "9999")),
    ("access-log", "1", "1000"),
    *(("zpool", "iostat", "-v", "tank", seconds, "2") for seconds in ("0", "61", "99")),
    *(("zpool", verb, "tank") for verb in ("destroy", "export", "offline", "replace")),
    ("zpool", "scrub", "-e", "tank"),
    ("zpool", "clear", "-F", "tank"),
    ("zpool", "replace", "-f", "tank", "sda", "/dev/sdb"),
    ("zpool", "replace", "tank", "sda", "/etc/shadow"),
    *(("zfs", "destroy", name) for name in ("tank", "tank/a", "tank/a@", "tank@a%b", "tank@a,b")),
    ("zfs", "destroy", "-r", "tank@a"),
    ("zfs", "snapshot", "-r", "tank@a"),
    ("zpool", "scrub", "tank", "other"),
    *(
        ("zfs", "set", pair, "tank/a")
        for pair in (
            *("sync=off", "compression=gzip-0", "atime=maybe", "mountpoint=/etc", "canmount=off"),
            *(
                "sharenfs=rw=/etc",
                "sharenfs=rw=-x",
                "sharenfs=exec",
                "sharenfs=rw=a b",
                "setuid=on",
            ),
        )
    ),
    ("zfs", "set", "atime=on", "tank" + "/a" * 21),
    ("zfs", "inherit", "mountpoint", "tank"),
    ("zfs", "inherit", "-r", "atime", "tank"),
    ("mdadm", "--detail", "/dev/sda"),
    ("mdadm", "--stop", "/dev/md0"),
    ("cat", "/proc/net/bonding/../../../etc/shadow"),
    ("cat", "/etc/shadow"),
    ("journalctl", "--vacuum-time=1s"),
    *(("mail-retry", name) for name in ("x", "-qff", "1xUjtg-00023k-1P other")),
    *(("postfix-retry", name) for name in ("ALL", "99AFC99FD66 other", "-f")),
    *(("nginx", "-T", "-q", "-c", path) for path in ("/tmp/evil.conf", "/etc/shadow")),
    *(
        ("nginx-agents", verb, f'if ($http_user_agent ~* "{name}") {{ return 403; }}')
        for verb, name in (("add", "a"), ("add", ".*"), ("add", "x" * 90), ("keep", "EvilBot"))
    ),
    ("service-test", "ssh.service"),
    *(
        ("service-control", verb, unit)
        for verb in ("restart", "reload", "start", "stop")
        for unit in ("nginx", "nginx.timer", "nginx.service ssh.service")
    ),
    *(("service-control", verb, "nginx.service") for verb in ("mask", "kill", "isolate", "")),
    ("journalctl", "-u", "nginx.service"),
)


def _refused_commands() -> Iterator[tuple[str, ...]]:
    """Yield commands that runbooks refuse, with script path and settings as in the rule."""
    rules = {rule.script.name: rule for rule in ALL if rule.script}
    for name, *words in _REFUSED_ANYWHERE:
        rule = rules.get(name)
        if rule is None or rule.script is None:
            yield (name, *words)
            continue
        given = iter(words)
        fixed = [
            str(word) if isinstance(word, Setting) else next(given, None)
            for word in rule.for_installed_scripts.words
        ]
        yield (rule.script.path, *(word for word in fixed if word is not None), *given)


@pytest.mark.real
def test_sudo_program_refuses_what_the_runbooks_refuse(private_sudoers: Path):
    commands = list(_refused_commands())
    through = [
        " ".join(words)
        for words, status in zip(commands, _query_sudo(private_sudoers, commands), strict=True)
        if status == 0
    ]
    assert len(commands) > 100
    assert through == []
    good = [words for words in GOOD if words[0].startswith("/usr/local/lib/keyturn/service-")]
    assert good
    assert _query_sudo(private_sudoers, good) == [0] * len(good)


@pytest.mark.parametrize(
    ("least", "most"), [(0, 0), (0, 10), (1, 48), (4, 1024), (7, 7), (99, 101), (256, 12000)]
)
def test_sudo_range_pattern_matches_exactly_the_numbers_in_its_range(least: int, most: int):
    fits = re.compile(make_range_pattern(least, most))
    assert [n for n in range(13000) if fits.fullmatch(str(n))] == [*range(least, most + 1)]
    assert not fits.fullmatch(f"0{least}")


def test_sudo_address_pattern_matches_addresses_as_python_writes_them():
    fits = re.compile(ADDRESS)
    for written in ("192.0.2.1", "::", "::1", "2001:db8::9", "1:2:3:4:5:6:7:8", "1::", "::2:3"):
        assert fits.fullmatch(str(ip_address(written)))
    for other in ("1.2.3", "256.1.1.1", "1:2:3", "::1%eth0", "1::2::3", ":", "1:2:3:4:5:6:7:8:9"):
        assert not fits.fullmatch(other)


# --- what scripts check themselves, since sudo cannot ---


def _run_script(
    script: Script, *words: str, path: Path | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{path}:/usr/sbin:/usr/bin:/sbin:/bin" if path else "/usr/bin:/bin"}
    return subprocess.run(
        ["sh", "-c", script.text, "keyturn", *words],
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


def _get_rule_script(rule: SudoRule) -> Script:
    assert rule.script is not None
    return rule.script


def _get_script(dialect: Any, name: str) -> Script:
    return next(each.script for each in dialect.SUDO if each.script and each.script.name == name)


_NGINX_STATE = "Id=nginx.service\nActiveState="


@pytest.mark.parametrize(
    ("verb", "unit", "state"),
    [
        ("restart", "ssh.service", "Id=ssh.service\nActiveState=active"),
        ("stop", "ssh.service", "Id=ssh.service\nActiveState=active"),
        ("reload", "harmless.service", "Id=ssh.service\nActiveState=active"),
        ("restart", "nginx.service", f"{_NGINX_STATE}active\nRequiredBy=a.service sshd.service"),
        ("stop", "nginx.service", f"{_NGINX_STATE}active\nConsistsOf=wg-quick@wg0.service"),
        ("start", "nginx.service", f"{_NGINX_STATE}inactive\nConflicts=nftables.service"),
        ("stop", "systemd-networkd.service", "Id=systemd-networkd.service\nActiveState=active"),
        ("restart", "nginx.service", f"{_NGINX_STATE}inactive"),
        ("reload", "nginx.service", f"{_NGINX_STATE}deactivating"),
    ],
)
def test_sudo_script_refuses_to_stop_sshd_and_to_restart_a_stopped_service(
    verb: str, unit: str, state: str, tmp_path: Path
):
    """A stub stands in for systemctl. The acceptance tests use a real one."""
    stub = tmp_path / "systemctl"
    stub.write_text(f"#!/bin/sh\n[ $1 = show ] && printf '{state}\n' || echo $1 done\n")
    stub.chmod(0o755)
    control = _get_rule_script(systemd.SUDO[-1])
    refused = _run_script(control, verb, unit, *_UNIT_SETTINGS, path=tmp_path)
    assert refused.returncode == 1
    assert "nothing was done" in refused.stderr
    assert not refused.stdout
    fine = "Id=web.service\nActiveState=active\nRequiredBy=worker.service"
    stub.write_text(f"#!/bin/sh\n[ $1 = show ] && printf '{fine}\n' || echo $1 done\n")
    done = _run_script(control, verb, "web.service", *_UNIT_SETTINGS, path=tmp_path)
    assert done.stdout == f"{verb} done\n"


@pytest.mark.parametrize("agent", ["Mozilla", "like Gecko", "firefox", "Pingdom.com", "Safari/6"])
def test_sudo_script_refuses_to_block_an_agent_that_matches_browsers(agent: str, tmp_path: Path):
    for dialect, name in ((nginx_agents, "nginx"), (apache_agents, "apachectl")):
        file = tmp_path / f"{name}-keyturn-agents.conf"
        file.touch()
        words = dialect.block_agent(agent).words[-1]
        done = _run_script(_get_rule_script(dialect.SUDO[1]), str(file), "/etc/x", "add", words)
        assert done.returncode == 1
        assert "match this" in done.stderr
        # Another one comes as far as the web server, which is not there.
        other = dialect.block_agent("EvilBot/2").words[-1]
        assert (
            "match this"
            not in _run_script(
                _get_rule_script(dialect.SUDO[1]), str(file), "/etc/x", "add", other
            ).stderr
        )


@pytest.mark.parametrize(
    ("connector", "name"), [(exim, "1xUjtg-00023k-1P"), (postfix, "99AFC99FD66")]
)
@pytest.mark.parametrize("other", ["ALL", "-qff", "", "99AFC99FD66;id", "*"])
def test_sudo_script_removes_only_mail_messages_by_id(
    connector: ModuleType, name: str, other: str, tmp_path: Path
):
    """Stubs stand in for the programs and print their arguments."""
    for program in ("exim", "postsuper"):
        (tmp_path / program).write_text('#!/bin/sh\necho removes "$@"\n')
        (tmp_path / program).chmod(0o755)
    words = ("exim",) if connector is exim else ()
    remove = _get_rule_script(connector.SUDO[1])
    fine = _run_script(remove, *words, path=tmp_path, stdin=f"{name}\n")
    assert "removes" in fine.stdout
    refused = _run_script(remove, *words, path=tmp_path, stdin=f"{name}\n{other}\n")
    if other:
        assert refused.returncode == 1
        assert "removes" not in refused.stdout
    assert "removes" not in _run_script(remove, *words, path=tmp_path, stdin=other).stdout


def test_sudo_script_refuses_a_disk_write_in_memory():
    done = _run_script(_get_rule_script(disk_write.SUDO[1]), "/dev/shm", "64")
    assert done.returncode == 1
    assert "others than root can write" in done.stderr or "on no disk" in done.stderr


def test_sudo_script_changes_only_hidepid_in_fstab(tmp_path: Path):
    file = tmp_path / "fstab"
    before = "proc\t/proc  proc\tnosuid,hidepid=1,gid=5\t0\t0\n"
    script = _get_script(hidepid, "hidepid-fstab")
    there = replace(script, code=script.code.replace("/etc/fstab", str(file)))
    for options in ("ro,nosuid,hidepid=1,gid=5", "hidepid=2", "defaults", "nosuid,gid=6"):
        file.write_text(before)
        assert _run_script(there, options).returncode == 1
        assert file.read_text() == before
    assert _run_script(there, "nosuid,gid=5,hidepid=2").returncode == 0
    assert file.read_text() == before.replace("hidepid=1,gid=5", "gid=5,hidepid=2")
    added = _get_script(hidepid, "hidepid-add")
    there = replace(added, code=added.code.replace("/etc/fstab", str(file)))
    done = _run_script(there, "proc /proc proc defaults,hidepid=2 0 0")
    assert "has a line for /proc" in done.stderr


def test_sudo_script_keeps_a_udev_rule_that_keyturn_did_not_write(tmp_path: Path):
    file = tmp_path / "60-keyturn-sda.rules"
    file.write_text("# mine\n")
    ours = block_rule.format_rule("sda", None, {"scheduler": "bfq"})
    for text in ("", ours):
        done = subprocess.run(
            ["sh", "-c", _get_rule_script(block_rule.SUDO[0]).text, "keyturn", str(file)],
            input=text,
            text=True,
            capture_output=True,
            check=False,
        )
        assert "not written by Keyturn" in done.stderr
    assert file.read_text() == "# mine\n"


@pytest.mark.parametrize(
    "setting", ['queue/read_ahead_kb}="65537', 'queue/scheduler}="mine', 'queue/rotational}="0']
)
def test_sudo_script_refuses_a_udev_rule_with_values_that_no_runbook_sets(
    setting: str, tmp_path: Path
):
    ours = block_rule.format_rule("sda", None, {"scheduler": "bfq"})
    assert _is_rule_accepted(_get_rule_script(block_rule.SUDO[0]).text, ours, tmp_path)
    (tmp_path / "60-keyturn-sda.rules").unlink()
    other = ours.replace('queue/scheduler}="bfq', setting)
    assert other != ours
    assert not _is_rule_accepted(_get_rule_script(block_rule.SUDO[0]).text, other, tmp_path)


def test_sudo_grants_of_a_runbook_are_those_of_its_connectors():
    meant = {words: load_catalogue()[words] for words in ("zfs scrub start", "abusers show")}
    granted = sudo_rules.list_sudo_grants(meant)
    assert {grant.dialect for grant in granted} == {"haproxy", "zfs"}
    assert {grant.runbooks for grant in granted} == {("abusers show",), ("zfs scrub start",)}
    (grant,) = sudo_rules.list_sudo_grants({"abusers show": load_catalogue()["abusers show"]})
    assert grant.rule.enrolled
    assert len(DIALECTS) > len(RULES)
