"""Directories that come from elsewhere: what an archive has, or a clone of a repository of git."""

import re
from collections.abc import Sequence

from bot.features.importing.drafts import (
    OWNER,
    Draft,
    Origin,
    Unclear,
    fill_marks,
    show_marks,
)
from bot.features.importing.kinds.access import refuse_access_within
from bot.features.importing.kinds.file_changes import look_for, refuse_odd_path
from bot.features.importing.kinds.file_sources import ADDRESS, FETCH_SECONDS
from bot.features.importing.kinds.file_trees import refuse_wide
from bot.features.importing.kinds.modes import read_mode_of_all
from connectors.script import load_code

# Beside those of a tree: where archives are often unpacked, and no one's programs or keys are.
_PLACES = frozenset({"/tmp", "/var/tmp", "/usr/local", "/var/lib", "/usr/local/bin"})  # noqa: S108
# Of tar: how many directories are left out, and the names of what is taken or not.
_OPTION = re.compile(r"--strip(-components)?=[0-9]|--no-same-owner|--exclude=[A-Za-z0-9_.*/@+-]+")
_MEMBER = re.compile(r"(?!-)[A-Za-z0-9_./@+-]+")
_REPOSITORY = re.compile(
    r"(https?|git|ssh)://[A-Za-z0-9@._-]+(:[0-9]+)?/[A-Za-z0-9_.~/+-]+"
    r"|[a-z][a-z0-9_-]*@[A-Za-z0-9.-]+:(?!/?-)[A-Za-z0-9_.~/+-]+"
)
_BRANCH = re.compile(r"(?!-|.*\.\.|.*//|.*[/.]$)[A-Za-z0-9_./+-]{1,100}")
_COMMIT = re.compile("[0-9a-f]{40}")


def carry_archive(
    draft: Draft,
    origin: Origin,
    source: str,
    path: str,
    options: Sequence[str],
    attributes: tuple[str, str, str],
    need: tuple[str, str],
) -> None:
    """Have what an archive has in a directory.

    source: its path, or its address. options: of tar. attributes: the mode, owner and group that
    each of its files gets; "" for those of the archive. need: the path that it creates, and the
    condition that shows whether it is needed, if there is none.
    """
    path = path.rstrip("/") or "/"
    refuse_odd_path(path)
    if path not in _PLACES:
        refuse_wide(path)
    for one in options:
        if not _OPTION.fullmatch(one) and not _MEMBER.fullmatch(one):
            raise Unclear(f"the option {show_marks(one)[:40]!r} of tar is not read")
    is_fetched = "://" in source
    if is_fetched and (not ADDRESS.fullmatch(fill_marks(source)) or source.startswith("\x01")):
        raise Unclear(f"{show_marks(source)[:80]!r} is not the address of a file")
    creates, when = need
    before, after = "not unpacked", "unpacked"
    if creates:
        found, there, _ = look_for(draft, creates)
        draft.claim(creates, "unpacked")
        when = f'{found} == ""'
        before, after = f"no {there}", f"{there} is there"
    _refuse_missing(draft, path, when, "directory", "is no directory")
    if not is_fetched:
        refuse_odd_path(source)
        _refuse_missing(draft, source, when, "file", "is missing")
    else:
        note = f"{draft.text(source)} has no checksum: no one sees before what it gives."
        draft.notes.append({"when": when, "text": note})
    draft.claim(f"{path}/ from {source}", "unpacked")
    arguments = [draft.word(source), path, *_make_attributes(draft, attributes), *options]
    draft.add_step(
        origin,
        {
            "title": f"Unpack {draft.text(source)} into {path}",
            "when": when,
            "do": {
                "script": load_code("unpack"),
                "arguments": arguments,
                "root": True,
                "seconds": FETCH_SECONDS,
            },
            "no_undo": "neither what it wrote over is kept, nor which files it brought",
            "before": before,
            "after": after,
        },
    )


def _refuse_missing(draft: Draft, path: str, when: str, kind: str, because: str) -> None:
    """Refuse the request where a path is missing that no step before it makes."""
    found, shown, _ = look_for(draft, path)
    if any(thing == path and wanted != "nothing" for thing, wanted, _ in draft.claims):
        return
    missing = f'{found} == ""' if kind == "file" else f'!{found}.matches("^(dir|sym)")'
    draft.refuse.append({"when": f"{when} && {missing}", "because": f"{shown} {because}"})


def _make_attributes(draft: Draft, attributes: tuple[str, str, str]) -> list[str]:
    """Return whose files are, as chown takes it, and their mode, as chmod does; or -."""
    mode, owner, group = attributes
    for name in (owner, group):
        if name and not OWNER.fullmatch(name):
            raise Unclear(f"the name {show_marks(name)[:40]!r} is not read")
    whose = f"{owner}:{group}" if group else owner
    return [draft.word(whose) if whose else "-", read_mode_of_all(mode)[0] if mode else "-"]


def carry_clone(
    draft: Draft,
    origin: Origin,
    repository: str,
    path: str,
    version: str,
    options: Sequence[str],
    *,
    updates: bool,
) -> None:
    """Have a clone of a repository of git in a directory.

    version: a branch, a tag or a commit; "" for the branch that is usual. updates: whether newer
    commits were fetched where there is a clone, which a note says; another commit is switched to.
    """
    path = path.rstrip("/")
    refuse_odd_path(path)
    # It is a new directory, so that nothing that is there is written over.
    refuse_access_within(path)
    if not _REPOSITORY.fullmatch(fill_marks(repository)) or repository.startswith("\x01"):
        raise Unclear(f"{show_marks(repository)[:80]!r} is not the address of a repository")
    is_commit = _COMMIT.fullmatch(version) is not None
    if version and not _BRANCH.fullmatch(version):
        raise Unclear(f"the version {show_marks(version)[:40]!r} is not read")
    head = f"{path}/.git/HEAD"
    reading = {"file": head, "root": True, "statuses": [0, 1], "as": "text"}
    found = draft.add_reading(f"head_{path}", reading)
    draft.current.append(f"{path} {{{found} == '' ? 'is no clone' : 'is at ' + {found}}}")
    _refuse_full(draft, path, found)
    if updates and not is_commit:
        note = f"Where {path} is a clone already, it is left as it is: Ansible would update it."
        draft.notes.append({"text": note})
    branch = [f"--branch={version}"] if version and not is_commit else []
    shown = draft.text(repository)
    draft.claim(path, "a clone")
    draft.claim(f"{path}/ from {repository}", version)
    draft.add_step(
        origin,
        {
            "title": f"Clone {shown} as {path}",
            "when": f'{found} == ""',
            "do": _run("clone", draft.word(repository), path, version if is_commit else "-",
                       *options, *branch),
            "no_undo": "remove the clone by hand: what was added to it since would go with it",
            "before": "no clone",
            "after": f"a clone of {shown}",
        },
    )  # fmt: skip
    if is_commit and updates:
        draft.add_step(
            origin,
            {
                "title": f"Switch {path} to {version[:12]}",
                "when": f'{found} != "" && {found} != "{version}"',
                "do": _run("clone-switch", path, version),
                "no_undo": f"switch it back by hand: it was at {{{found}}}",
                "before": f"{{{found}}}",
                "after": version,
            },
        )


def _refuse_full(draft: Draft, path: str, head: str) -> None:
    """Refuse to clone into a directory with something in it."""
    is_there, _, _ = look_for(draft, path)
    run = ["/usr/bin/find", path, "-maxdepth", "0", "!", "-empty"]
    reading = {"when": f'{is_there} != ""', "run": run, "root": True, "as": "text"}
    full = draft.add_reading(f"full_{path}", reading)
    because = f"{path} is no clone, and there is something in it"
    draft.refuse.append({"when": f'{head} == "" && {full} == "{path}"', "because": because})


def _run(name: str, *arguments: str) -> dict[str, object]:
    script = {"script": load_code(name), "arguments": [*arguments]}
    return {**script, "root": True, "seconds": FETCH_SECONDS}
