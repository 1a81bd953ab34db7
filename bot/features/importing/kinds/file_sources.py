"""Files that come from elsewhere: from another one of the host, or fetched by their address."""

import re
from collections.abc import Mapping

from bot.features.importing.drafts import (
    Draft,
    Origin,
    Unclear,
    fill_marks,
    run_as_root,
    show_marks,
)
from bot.features.importing.kinds.access import refuse_access, refuse_access_within, refuse_keys
from bot.features.importing.kinds.file_changes import (
    carry_attributes,
    look_for,
    read_digest,
    refuse_directory,
    refuse_link,
    refuse_odd_path,
)
from connectors.script import load_code

ADDRESS = re.compile("https?://[A-Za-z0-9.-]+(:[0-9]+)?/[A-Za-z0-9_.~%/?=&+:,@-]*")
_DIGEST = re.compile("sha256:([0-9a-f]{64})")
FETCH_SECONDS = 900
_COPIED = "what is copied"


def carry_copy(
    draft: Draft,
    origin: Origin,
    source: str,
    path: str,
    attributes: Mapping[str, str],
    *,
    by_cp: bool = False,
    keeps: bool = False,
) -> None:
    """Have a file with the content of another one of the host.

    by_cp: with its mode too, if it is new, as `cp` makes it. keeps: unless there is a file,
    whatever is in it.
    """
    refuse_access(path)
    refuse_keys(path)
    _refuse_changed(draft, source)
    # A value of the request could be a file that not everyone may read.
    if "\x01" in source:
        raise Unclear("its source is a value of the request")
    refuse_odd_path(source)
    name, there = read_digest(draft, path), read_digest(draft, source)
    _, _, word = look_for(draft, path)
    refuse_directory(draft, path)
    because = f"{draft.text(source)} is missing, or no file"
    draft.refuse.append({"when": f'{there} == ""', "because": because})
    refuse_link(draft, path)
    plain = [] if by_cp else ["--no-preserve=all"]
    copy = run_as_root("/usr/bin/cp", *plain, "--", draft.word(source), word)
    is_other = "" if keeps else f'split({name}, " ")[0] != split({there}, " ")[0]'
    after = f"the content of {draft.text(source)}"
    # What changes the source later would have it copied again.
    draft.claim(f"the content of {source}", _COPIED)
    _write(draft, origin, path, (copy, copy), (name, is_other), after)
    carry_attributes(draft, origin, path, attributes)


def _refuse_changed(draft: Draft, source: str) -> None:
    for thing, wanted, _ in draft.claims:
        if thing in (source, f"the content of {source}") and wanted != _COPIED:
            raise Unclear(f"a step before it changes {show_marks(source)}, which was read before")


def carry_move(draft: Draft, origin: Origin, source: str, path: str) -> None:
    """Have a file or a directory under another path, where it is there."""
    for one in (source, path):
        refuse_odd_path(one)
        refuse_access_within(one)
        if one.count("/") < 2 or "\x01" in one:
            raise Unclear(f"access to a host may depend on {show_marks(one)}")
    _refuse_changed(draft, source)
    (there, shown, word), (other, new, target) = look_for(draft, source), look_for(draft, path)
    refuse_directory(draft, path)
    because = f"neither {shown} nor {new} is there"
    draft.refuse.append({"when": f'{there} == "" && {other} == ""', "because": because})
    draft.claim(source, "nothing")
    draft.claim(path, f"what {source} was")
    move = run_as_root("/usr/bin/mv", "-fT", "--", word, target)
    for title, sign, undo in (
        (
            f"Move {shown} to {new}",
            "==",
            {"undo": run_as_root("/usr/bin/mv", "-nT", "--", target, word)},
        ),
        (f"Move {shown} over {new}", "!=", {"no_undo": f"what {new} was is not kept"}),
    ):
        draft.add_step(
            origin,
            {
                "title": title,
                "when": f'{there} != "" && {other} {sign} ""',
                "do": move,
                **undo,
                "before": f"{shown} is there",
                "after": f"{new} is there",
            },
        )


def carry_fetched(
    draft: Draft,
    origin: Origin,
    address: str,
    path: str,
    checksum: str,
    attributes: Mapping[str, str],
) -> None:
    """Have a file that is fetched if there is none, or if it has another checksum."""
    refuse_access(path)
    refuse_keys(path)
    digest = _DIGEST.fullmatch(checksum.lower())
    if checksum and not digest:
        raise Unclear("its checksum is not one of SHA-256, as 64 digits")
    if not ADDRESS.fullmatch(fill_marks(address)) or address.startswith("\x01"):
        raise Unclear(f"{show_marks(address)[:80]!r} is not the address of a file")
    is_there, _, word = look_for(draft, path)
    refuse_directory(draft, path)
    arguments = [draft.word(address), word, *([digest[1]] if digest else [])]
    fetch = {"arguments": arguments, "root": True, "seconds": FETCH_SECONDS}
    make, change = ({"script": load_code(name), **fetch} for name in ("fetch-new", "fetch-other"))
    if digest:
        name = read_digest(draft, path)
        is_other = f'!{name}.startsWith("{digest[1]}")'
        after = f"content with the SHA-256 {digest[1][:12]}"
        _write(draft, origin, path, (make, change), (name, is_other), after)
    else:
        note = f"{draft.text(address)} has no checksum: no one sees before what it gives."
        draft.notes.append({"when": f'{is_there} == ""', "text": note})
        after = f"what {draft.text(address)} gives"
        _write(draft, origin, path, (make, make), (is_there, ""), after)
    carry_attributes(draft, origin, path, attributes)


def _write(
    draft: Draft,
    origin: Origin,
    path: str,
    commands: tuple[Mapping[str, object], Mapping[str, object]],
    states: tuple[str, str],
    after: str,
) -> None:
    """Add the steps that make a file, and that replace its content, by one command each.

    states: what is "" if there is no file, and when it has other content; "" if it is kept.
    """
    found, is_other = states
    shown, word = draft.text(path), draft.word(path)
    draft.claim(path, "a file")
    draft.claim(f"the content of {path}", after)
    draft.add_step(
        origin,
        {
            "title": f"Create {shown}",
            "when": f'{found} == ""',
            "do": commands[0],
            "undo": run_as_root("/usr/bin/rm", "-f", "--", word),
            "before": "no file",
            "after": after,
        },
    )
    if not is_other:
        return
    draft.claim(f"the content of {path}", after)
    draft.add_step(
        origin,
        {
            "title": f"Replace the content of {shown}",
            "when": f'{found} != "" && {is_other}',
            "do": commands[1],
            "no_undo": "what was in the file is not kept: copy it first",
            "before": "other content",
            "after": after,
        },
    )
