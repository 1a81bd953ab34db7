"""The reference of the command line, generated from the commands."""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence

import click

from bot.__main__ import main
from tests.cli_commands import load_commands
from tests.docs.markdown import (
    escape_text,
    format_code,
    format_paragraph,
    format_table,
    join_blocks,
    make_anchor,
)

_INTRODUCTION = """\
Each command with its options and an example, generated from the commands by `make docs`.
[Command line](../command-line.md) explains how to set up a client, and lists the exit statuses."""
# The commands of the help's sections. Those about redundancy have a page of their own.
_OWN_PAGE = "tree"
_SECTIONS: Mapping[str, Sequence[str]] = {
    **{
        title: [one.name for one in entries if one.name != _OWN_PAGE]
        for title, entries in main.sections.items()
    },
    "Redundancy": [_OWN_PAGE],
}
_CLIENT_OPTIONS = "--as", "--url"
_SAME_EXIT_STATUS = re.compile(r"Exit status: 0 success")


def _create_context(command: click.Command) -> click.Context:
    """Return a context with the settings of `keyturn`, since click caches the help option."""
    return click.Context(command, **main.context_settings)


def build_cli_pages() -> Mapping[str, str]:
    """Return the text of each page by its name in docs/cli."""
    pages = {f"{make_anchor(title)}.md": _build_page(title) for title in _SECTIONS}
    return {"README.md": _build_index(), **pages}


def _build_index() -> str:
    blocks = ["# Command reference", _INTRODUCTION + " [Contents](../README.md)"]
    for title in _SECTIONS:
        page = f"{make_anchor(title)}.md"
        rows = [
            (f"[`{path}`]({page}#{make_anchor(path)})", escape_text(_get_summary(command)))
            for path, command in _list_commands(title)
        ]
        blocks += [f"## {title}", format_table(("command", "what it does"), rows)]
    blocks += [
        "## Client options",
        format_paragraph("Every command that uses the API takes these options:"),
        format_table(("option", "meaning"), _list_client_options()),
    ]
    return join_blocks(blocks)


def _list_client_options() -> list[tuple[str, str]]:
    command = load_commands(main)["runs"]
    return [row for row in _list_options(command) if _is_client_option(row[0])]


def _is_client_option(option: str) -> bool:
    return any(option.startswith(f"`{name} ") for name in _CLIENT_OPTIONS)


def _build_page(title: str) -> str:
    blocks = [f"# {title}", "[All commands](README.md)"]
    for path, command in _list_commands(title):
        blocks += _describe_command(path, command)
    return join_blocks(blocks)


def _list_commands(title: str) -> Iterator[tuple[str, click.Command]]:
    for name in _SECTIONS[title]:
        yield from _walk(f"keyturn {name}", load_commands(main)[name])


def _walk(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield a command, or the commands of a group, with the words that call it."""
    if isinstance(command, click.Group):
        for name in command.list_commands(_create_context(command)):
            yield from _walk(f"{path} {name}", load_commands(command)[name])
    elif not command.hidden:
        yield path, command


def _describe_command(path: str, command: click.Command) -> Iterator[str]:
    paragraphs, example = _split_help(path, command)
    yield f"## {path}"
    yield from paragraphs
    yield format_code(_format_usage(path, command))
    options = _list_options(command)
    shared = [row for row in options if _is_client_option(row[0])]
    uses_api = len(shared) == len(_CLIENT_OPTIONS)
    if uses_api:
        options = [row for row in options if not _is_client_option(row[0])]
    if options:
        yield format_table(("option", "meaning"), options)
    if uses_api:
        yield "Uses the API, and takes the [client options](README.md#client-options)."
    if example:
        yield "Example:"
        yield format_code(example)


def _format_usage(path: str, command: click.Command) -> str:
    pieces = command.collect_usage_pieces(_create_context(command))
    return " ".join([path, *pieces])


def _get_summary(command: click.Command) -> str:
    return command.get_short_help_str(limit=1000)


def _split_help(path: str, command: click.Command) -> tuple[list[str], str]:
    """Return the paragraphs of a command's help, and its example.

    A command without arguments is its own example. Raises ValueError for any other without one.
    """
    texts: list[str] = []
    example = ""
    for block in inspect.cleandoc(command.help or "").split("\n\n"):
        if _SAME_EXIT_STATUS.match(block):
            continue
        text, examples = _split_example(block, after_colon=bool(texts) and texts[-1].endswith(":"))
        example = examples or example
        texts += [text] if text else []
    if not example and any(parameter.required for parameter in command.params):
        raise ValueError(f"{path} has no example: add a line `For example: {path} …` to it")
    paragraphs = [format_paragraph(re.sub(r":\Z", ".", text)) for text in texts]
    return paragraphs, example or (path if not command.params else "")


def _split_example(block: str, *, after_colon: bool) -> tuple[str, str]:
    """Return what a block of help says before its example, and the example; "" for none.

    Args:
        after_colon: Whether the block before announces this one.
    """
    text = " ".join(block.removeprefix("\b").split())
    if block.startswith("\b") or (after_colon and "keyturn " in block):
        return "", block.removeprefix("\b").strip()
    match = re.search(r"For example(?::|, [^:]*:) (keyturn .*)", text)
    if match:
        return text[: match.start()].strip(), match[1]
    match = re.search(r": (keyturn .*)\Z", text)
    return (f"{text[: match.start()]}.", match[1]) if match else (text, "")


def _list_options(command: click.Command) -> list[tuple[str, str]]:
    """Return the options of a command but `--help`: how to write each, and its meaning."""
    context = _create_context(command)
    records = [
        parameter.get_help_record(context)
        for parameter in command.params
        if isinstance(parameter, click.Option)
    ]
    return [
        (f"`{names}`", escape_text(" ".join(text.split())))
        for names, text in filter(None, records)
    ]
