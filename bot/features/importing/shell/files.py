"""Commands of a shell that change files: what each does, with the options that are read."""

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence

from bot.features.importing.drafts import Draft, Origin, Unclear
from bot.features.importing.kinds import (
    changes,
    file_archives,
    file_changes,
    file_lines,
    file_mounts,
    file_sources,
    file_trees,
)

Carry = Callable[[Draft, Origin], None]
Understand = Callable[[Sequence[str]], list[Carry] | None]

# A text that a shell takes as it stands; `echo` of dash would read a backslash.
_TEXT = r"""(?P<one>'[^'\\]*'|"[^"\\$`!]*"|[A-Za-z0-9_./:=,@%+ -]+?)"""
_WRITE = re.compile(
    rf"echo\s+(?!-){_TEXT}\s*"
    r"(?:(?P<sign>>>?)\s*|\|\s*(?:sudo\s+)?tee\s+(?P<option>-a\s+)?)(?P<quote>[\"']?)"
    r"(?P<path>/[^\s\"'>|&;$`*?]+)(?P=quote)(?:\s*>\s*/dev/null)?"
)
_OF_KERNEL = re.compile(r"/proc/sys/([a-z0-9_/-]+)")
_AGAIN = "A shell adds a line each time that it runs; this adds it where {0} has none like it."


def split_options(rest: Sequence[str], allowed: str) -> tuple[str, list[str]] | None:
    """Return short options, and the other words; None for an option that is not allowed."""
    options = "".join(word[1:] for word in rest if word.startswith("-") and word != "--")
    if any(word.startswith("--") and word != "--" for word in rest) or set(options) - set(allowed):
        return None
    return options, [word for word in rest if not word.startswith("-")]


def understand_write(line: str) -> list[Carry] | None:
    """Return what a line does that writes a text with `echo`; None for another one."""
    found = _WRITE.fullmatch(line.removeprefix("sudo ").strip())
    if found is None or found["path"].startswith("/dev/"):
        return None
    text, path = found["one"], found["path"]
    text = text[1:-1] if text[0] in "\"'" else " ".join(text.split())
    appends = found["sign"] == ">>" or found["option"] is not None
    if kernel := _OF_KERNEL.fullmatch(path):
        key = kernel[1].replace("/", ".")
        return [lambda draft, origin: changes.carry_sysctl(draft, origin, key, text)]
    return [lambda draft, origin: _carry_write(draft, origin, path, text, appends=appends)]


def _carry_write(draft: Draft, origin: Origin, path: str, text: str, *, appends: bool) -> None:
    if path.startswith(("/proc/", "/sys/")):
        raise Unclear(f"what is read from {path} is not what was written there")
    if not appends:
        file_changes.carry_content(draft, origin, path, f"{text}\n", {})
        return
    draft.notes.append({"text": _AGAIN.format(draft.text(path))})
    file_lines.carry_line(draft, origin, path, text, wanted="created")


def _understand_mkdir(rest: Sequence[str]) -> list[Carry] | None:
    mode, rest = _take_value(rest, "-m", "--mode")
    split = split_options(rest, "pv")
    if split is None or not split[1]:
        return None
    return [
        lambda draft, origin, each=each: file_changes.carry_directory(
            draft, origin, each, {}, new_mode=mode
        )
        for each in split[1]
    ]


def _take_value(rest: Sequence[str], *names: str) -> tuple[str, list[str]]:
    """Return the value of an option, and the other words."""
    words = [*rest]
    for at, word in enumerate(words[:-1]):
        if word in names:
            return words[at + 1], words[:at] + words[at + 2 :]
    for word in words:
        name, sign, value = word.partition("=")
        if sign and name in names:
            return value, [one for one in words if one != word]
    return "", words


def _understand_touch(rest: Sequence[str]) -> list[Carry] | None:
    if not rest or any(word.startswith("-") for word in rest):
        return None
    return [
        lambda draft, origin, each=each: file_changes.carry_file(draft, origin, each, {})
        for each in rest
    ]


def _understand_rm(rest: Sequence[str]) -> list[Carry] | None:
    split = split_options(rest, "rRfv")
    if split is None or not split[1]:
        return None
    whole = bool(set(split[0]) & {"r", "R"})
    return [
        lambda draft, origin, each=each: file_changes.carry_removal(
            draft, origin, each, whole=whole
        )
        for each in split[1]
    ]


def _understand_mode(name: str) -> Understand:
    def understand(rest: Sequence[str]) -> list[Carry] | None:
        split = split_options(["-R" if word == "--recursive" else word for word in rest], "Rvc")
        if split is None or len(split[1]) < 2:
            return None
        is_tree, rest = "R" in split[0], split[1]
        carry = file_trees.carry_tree if is_tree else file_changes.carry_attributes
        attributes = {name: rest[0]}
        if name == "owner" and ":" in rest[0]:
            owner, _, group = rest[0].partition(":")
            attributes = {"owner": owner, "group": group}
        return [
            lambda draft, origin, each=each: carry(draft, origin, each, attributes, by_chmod=True)
            for each in rest[1:]
        ]

    return understand


def _name_target(source: str, path: str) -> str:
    """Return where a file goes that is put into a directory, as a slash at the end says."""
    return posixpath.join(path, posixpath.basename(source)) if path.endswith("/") else path


def _understand_ln(rest: Sequence[str]) -> list[Carry] | None:
    split = split_options(["-s" if word == "--symbolic" else word for word in rest], "sfnvT")
    if split is None or "s" not in split[0] or len(split[1]) != 2:
        return None
    target, path = split[1][0], _name_target(*split[1])
    replaces = "f" in split[0]
    return [
        lambda draft, origin: file_changes.carry_link(
            draft, origin, path, target, replaces=replaces
        )
    ]


def _understand_cp(rest: Sequence[str]) -> list[Carry] | None:
    split = split_options(rest, "fvn")
    if split is None or len(split[1]) != 2:
        return None
    source, path = split[1][0], _name_target(*split[1])
    keeps = "n" in split[0]
    return [
        lambda draft, origin: file_sources.carry_copy(
            draft, origin, source, path, {}, by_cp=True, keeps=keeps
        )
    ]


def _understand_mv(rest: Sequence[str]) -> list[Carry] | None:
    split = split_options(rest, "fvT")
    if split is None or len(split[1]) != 2:
        return None
    source, path = split[1][0], _name_target(*split[1])
    return [lambda draft, origin: file_sources.carry_move(draft, origin, source, path)]


def _understand_install(rest: Sequence[str]) -> list[Carry] | None:
    attributes = dict[str, str]()
    for name, options in (("mode", ("-m", "--mode")), ("owner", ("-o", "--owner")),
                          ("group", ("-g", "--group"))):  # fmt: skip
        attributes[name], rest = _take_value(rest, *options)
    attributes["mode"] = attributes["mode"] or "0755"
    split = split_options(rest, "dDvc")
    if split is None or not split[1]:
        return None
    options, words = split
    if "d" in options:
        return [
            lambda draft, origin, each=each: file_changes.carry_directory(
                draft, origin, each, attributes
            )
            for each in words
        ]
    if len(words) != 2:
        return None
    source, path = words[0], _name_target(*words)
    # It makes a file of root in place of the other one.
    for name in ("owner", "group"):
        attributes[name] = attributes[name] or "root"
    above: list[Carry] = [
        lambda draft, origin: file_changes.carry_directory(
            draft, origin, posixpath.dirname(path), {}
        )
    ]
    return [
        *(above if "D" in options else []),
        lambda draft, origin: file_sources.carry_copy(draft, origin, source, path, attributes),
    ]


def _understand_git(rest: Sequence[str]) -> list[Carry] | None:
    if rest[:1] != ["clone"]:
        return None
    branch, words = _take_value(rest[1:], "-b", "--branch")
    depth, words = _take_value(words, "--depth")
    whole = {"--recursive", "--recurse-submodules"}
    quiet = {"-q", "--quiet", "--single-branch", "--"}
    options = ["--recurse-submodules"] if whole & {*words} else []
    options += ["--single-branch"] if "--single-branch" in words else []
    options += [f"--depth={depth}"] if depth else []
    others = [word for word in words if word not in whole | quiet]
    if len(others) != 2 or others[1].startswith("-") or (depth and not depth.isdecimal()):
        return None
    return [
        lambda draft, origin: file_archives.carry_clone(
            draft, origin, others[0], others[1], branch, options, updates=False
        )
    ]


def _understand_fallocate(rest: Sequence[str]) -> list[Carry] | None:
    size, words = _take_value(rest, "-l", "--length")
    if not size or len(words) != 1 or words[0].startswith("-"):
        return None
    path = words[0]
    return [
        lambda draft, origin: file_mounts.carry_zeros(
            draft,
            origin,
            path,
            file_mounts.read_size(size),
            "/usr/bin/fallocate",
            "-l",
            size,
            path,
        )
    ]


def _understand_dd(rest: Sequence[str]) -> list[Carry] | None:
    given = {name: value for name, _, value in (word.partition("=") for word in rest)}
    path = given.pop("of", "")
    given.pop("status", "")
    if given.keys() != {"if", "bs", "count"} or given["if"] != "/dev/zero" or not path:
        return None
    size, count = given["bs"], given["count"]

    def carry(draft: Draft, origin: Origin) -> None:
        bytes_ = file_mounts.read_size(size) * file_mounts.read_size(count)
        file_mounts.carry_zeros(draft, origin, path, bytes_, "/usr/bin/dd", *rest)

    return [carry]


def _understand_mkswap(rest: Sequence[str]) -> list[Carry] | None:
    if len(rest) != 1 or rest[0].startswith("-"):
        return None
    return [lambda draft, origin: file_mounts.carry_swap_format(draft, origin, rest[0])]


def _understand_swap(*, on: bool) -> Understand:
    def understand(rest: Sequence[str]) -> list[Carry] | None:
        if not on and rest in (["-a"], ["--all"]):
            return [file_mounts.carry_no_swap]
        if len(rest) != 1 or rest[0].startswith("-"):
            return None
        return [lambda draft, origin: file_mounts.carry_swap(draft, origin, rest[0], on=on)]

    return understand


def _understand_umount(rest: Sequence[str]) -> list[Carry] | None:
    if len(rest) != 1 or not rest[0].startswith("/") or rest[0].startswith("/dev/"):
        return None
    return [lambda draft, origin: file_mounts.carry_unmounted(draft, origin, rest[0])]


FILE_PROGRAMS: Mapping[str, Understand] = {
    "mkdir": _understand_mkdir,
    "touch": _understand_touch,
    "rm": _understand_rm,
    "chmod": _understand_mode("mode"),
    "chown": _understand_mode("owner"),
    "chgrp": _understand_mode("group"),
    "ln": _understand_ln,
    "cp": _understand_cp,
    "mv": _understand_mv,
    "install": _understand_install,
    "git": _understand_git,
    "fallocate": _understand_fallocate,
    "dd": _understand_dd,
    "mkswap": _understand_mkswap,
    "swapon": _understand_swap(on=True),
    "swapoff": _understand_swap(on=False),
    "umount": _understand_umount,
}
