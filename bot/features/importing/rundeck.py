"""Job definitions of Rundeck, in YAML and in XML.

Formats: https://docs.rundeck.com/docs/manual/document-format-reference/job-yaml-v12.html and
job-v20.html.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.features.importing.drafts import Kind, Origin, Unclear, make_name, show_marks
from bot.features.importing.pages import Imported, Pages, make_fields
from bot.features.importing.shell import lines as shell_lines
from bot.features.importing.sources import (
    Element,
    SourceError,
    as_list,
    as_mapping,
    is_list_of_mappings,
    is_true,
    read_bytes,
    read_xml,
    read_yaml,
)
from runbooks._declared_yaml import Document, KeyPath

# A variable of a shell has no dot in its name, so ${word.word} is one of Rundeck's.
_VALUE = re.compile(
    r"\$\{([a-z]+\.[\w.-]+)\}"
    r"|@(option\.[\w.-]+|node\.[\w-]+|job\.[\w.-]+|globals\.[\w.-]+|data\.[\w.-]+)@"
    r"|\$\{?(RD_[A-Z0-9_]+)\}?"
)
_SETTINGS: Mapping[str, str] = {
    "schedule": "write a schedule in Keyturn: `keyturn schedule new`",
    "schedules": "write a schedule in Keyturn: `keyturn schedule new`",
    "notification": "Keyturn posts each run itself; webhooks send it on",
    "nodefilters": "the request names the host; give a page `host: {tag: …}`",
    "dispatch": "a request for several hosts is one for each",
    "timeout": "each command has `seconds`",
    "retry": "Keyturn does not repeat what failed",
    "orchestrator": "a request for several hosts is one for each",
    "errorhandler": "Keyturn stops at a step that fails, and offers the undo of those before",
}


_KEEPS_GOING = "Keyturn stops at the first step that fails"


@dataclass
class Command:
    """One step of a job."""

    line: int
    kind: str
    """exec, script, jobref, …"""
    text: str
    interpreter: str = ""
    description: str = ""
    arguments: str = ""


@dataclass
class Job:
    """One job, as both formats have it."""

    line: int
    name: str
    description: str
    options: list[tuple[str, Mapping[str, Any]]] = field(
        default_factory=list[tuple[str, Mapping[str, Any]]]
    )
    commands: list[Command] = field(default_factory=list[Command])
    settings: list[tuple[int, str, str]] = field(default_factory=list[tuple[int, str, str]])
    """What has no place in a page: its line, its name and the reason."""


def import_rundeck(file: Path, taken: set[str]) -> list[Imported]:
    """Return the drafts of each job in a file. Raises SourceError."""
    content = read_bytes(file)
    is_xml = content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")
    jobs = _read_xml_jobs(file, content) if is_xml else _read_yaml_jobs(file, content)
    return [_import_job(file, job).finish(taken) for job in jobs]


def _read_yaml_jobs(file: Path, content: bytes) -> list[Job]:
    document = read_yaml(file, content)
    is_list = isinstance(document.data, list)
    jobs = as_list(document.data) if is_list else [document.data]
    if not jobs or not all("sequence" in as_mapping(one) for one in jobs):
        raise SourceError(
            f"{file}: line 1: is not a job of Rundeck: a list of jobs, each with a `sequence`"
        )
    return [
        _read_yaml_job(file, document, (at,) if is_list else (), one)
        for at, one in enumerate(jobs)
    ]


def _read_yaml_job(file: Path, document: Document, path: KeyPath, raw: dict[str, Any]) -> Job:
    def find_line(*more: str | int) -> int:
        return document.make_error((*path, *more), "").line

    job = Job(find_line(), str(raw.get("name") or "job"), str(raw.get("description") or ""))
    sequence = as_mapping(raw["sequence"])
    commands = sequence.get("commands") if sequence else raw["sequence"]
    if not is_list_of_mappings(commands):
        raise SourceError(
            f"{file}: line {find_line('sequence')}: `sequence` has no list of `commands`, each a "
            "mapping such as exec: uptime"
        )
    base: KeyPath = ("sequence", "commands") if sequence else ("sequence",)
    for at, each in enumerate(as_list(commands)):
        line = find_line(*base, at)
        job.commands.append(_read_yaml_command(line, each))
        if "errorhandler" in each:
            job.settings.append((line, "errorhandler", _SETTINGS["errorhandler"]))
    job.options += _list_yaml_options(raw.get("options"))
    job.settings += [(find_line(key), key, _SETTINGS[key]) for key in raw if key in _SETTINGS]
    if is_true(sequence.get("keepgoing")):
        job.settings.append((find_line("sequence"), "keepgoing", _KEEPS_GOING))
    return job


def _list_yaml_options(given: object) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the options of a job, which older versions wrote as a mapping."""
    named = [(name, as_mapping(each)) for name, each in as_mapping(given).items()]
    listed = [(str(as_mapping(one).get("name", "")), as_mapping(one)) for one in as_list(given)]
    return [(name, one) for name, one in [*named, *listed] if name]


def _read_yaml_command(line: int, raw: Mapping[str, Any]) -> Command:
    description = str(raw.get("description") or "")
    interpreter = str(raw.get("scriptInterpreter") or "")
    arguments = str(raw.get("args") or "")
    for kind in ("exec", "script", "scriptfile", "scripturl", "command"):
        if kind in raw:
            return Command(line, kind, str(raw[kind] or ""), interpreter, description, arguments)
    if jobref := as_mapping(raw.get("jobref")):
        return Command(line, "jobref", str(jobref.get("name", "")), description=description)
    given = as_mapping(raw.get("configuration"))
    return _read_plugin(line, str(raw.get("type", "")), given, description=description)


def _read_plugin(line: int, kind: str, given: Mapping[str, Any], *, description: str) -> Command:
    if kind == "exec-command" and "adhocRemoteString" in given:
        return Command(line, "exec", str(given["adhocRemoteString"]), description=description)
    if kind == "script-inline" and "adhocLocalString" in given:
        interpreter = str(given.get("scriptInterpreter") or "")
        arguments = str(given.get("argString") or "")
        text = str(given["adhocLocalString"])
        return Command(line, "script", text, interpreter, description, arguments)
    return Command(line, "plugin", kind or "a step of an unknown kind", description=description)


def _read_xml_jobs(file: Path, content: bytes) -> list[Job]:
    root = read_xml(file, content)
    jobs = [one for one in root.children if one.name == "job"]
    if root.name != "joblist" or not jobs:
        raise SourceError(
            f"{file}: line {root.line}: is not a list of jobs of Rundeck: <joblist> with <job>"
        )
    return [_read_xml_job(file, one) for one in jobs]


def _read_xml_job(file: Path, element: Element) -> Job:
    sequence = element.find("sequence")
    if sequence is None:
        raise SourceError(f"{file}: line {element.line}: this <job> has no <sequence>")
    job = Job(element.line, element.get_text("name") or "job", element.get_text("description"))
    for each in sequence.list("command"):
        job.commands.append(_read_xml_command(each))
        if each.find("errorhandler"):
            job.settings.append((each.line, "errorhandler", _SETTINGS["errorhandler"]))
    options = element.list("context", "options", "option") or element.list("options", "option")
    for each in options:
        job.options.append((each.attributes.get("name", ""), _read_xml_option(each)))
    for each in element.children:
        if each.name in _SETTINGS and (each.children or each.text.strip() or each.attributes):
            job.settings.append((each.line, each.name, _SETTINGS[each.name]))
    if is_true(sequence.attributes.get("keepgoing")):
        job.settings.append((sequence.line, "keepgoing", _KEEPS_GOING))
    return job


def _read_xml_option(element: Element) -> Mapping[str, Any]:
    given = element.attributes
    return {
        "description": element.get_text("description") or given.get("description", ""),
        "values": [one for one in given.get("values", "").split(",") if one],
        "enforced": given.get("enforcedvalues"),
        "secure": given.get("secure"),
    }


def _read_xml_command(element: Element) -> Command:
    description = element.get_text("description")
    arguments = element.get_text("scriptargs")
    interpreter = element.get_text("scriptinterpreter")
    for kind in ("exec", "script", "scriptfile", "scripturl"):
        found = element.find(kind)
        if found is not None:
            return Command(element.line, kind, found.text, interpreter, description, arguments)
    if (jobref := element.find("jobref")) is not None:
        name = jobref.attributes.get("name", "")
        return Command(element.line, "jobref", name, description=description)
    for name in ("node-step-plugin", "step-plugin"):
        if (plugin := element.find(name)) is not None:
            entries = {
                one.attributes.get("key", ""): one.attributes.get("value", one.text)
                for one in plugin.list("configuration", "entry")
            }
            kind = plugin.attributes.get("type", "")
            return _read_plugin(element.line, kind, entries, description=description)
    return Command(element.line, "plugin", "a step of an unknown kind", description=description)


def _import_job(file: Path, job: Job) -> Pages:
    is_secret = {name: is_true(one.get("secure")) for name, one in job.options}
    options = [
        (name, {**one, "enforced": is_true(one.get("enforced"))})
        for name, one in job.options
        if not is_secret[name]
    ]
    sentence = " ".join((job.description.split("\n")[0] or job.name).split())[:180]
    sentence = f"{sentence.rstrip('.')}."
    pages = Pages(job.name, sentence, file, make_fields(options))
    names = {"node.name": "host", "RD_NODE_NAME": "host"}
    names |= {f"option.{name}": "" for name, secret in is_secret.items() if secret}
    for name, _ in options:
        names[f"option.{name}"] = make_name(name)
        names[f"RD_OPTION_{re.sub(r'[^A-Z0-9]', '_', name.upper())}"] = make_name(name)
    for line, name, reason in job.settings:
        pages.leave_out(Origin(file, line, name), reason, is_setting=True)
    for name in (name for name, secret in is_secret.items() if secret):
        pages.leave_out(
            Origin(file, job.line, f"the option {name}"),
            "Keyturn keeps no password in a request: have the host read it from a file",
            is_setting=True,
        )
    if _is_served(pages, file, job, names):
        return pages
    for command in job.commands:
        _import_command(pages, file, command, names)
    return pages


def _is_served(pages: Pages, file: Path, job: Job, names: dict[str, str]) -> bool:
    """Return whether all of a job is what Keyturn's own runbooks do with services."""
    found: list[tuple[Command, tuple[str, str]]] = []
    for command in job.commands:
        try:
            code, problems = shell_lines.replace_values(command.text.strip(), _VALUE, names)
            is_line = command.kind == "exec" and not problems
            meanings = shell_lines.understand_line(code) if is_line else None
        except Unclear:
            return False
        # A test of the configuration, as in `nginx -t && systemctl reload nginx`, only reads.
        if meanings is None or not all(
            one.service[0] or one.left_out or one.reads for one in meanings
        ):
            return False
        found += [(command, one.service) for one in meanings]
    if not any(verb in ("restart", "reload", "status") for _, (verb, _) in found):
        return False
    for command, (verb, name) in found:
        origin = _make_origin(file, command)
        if verb and verb != "enable":
            shown = show_marks(name.removesuffix(".service"))
            note = f"Keyturn has it, no draft is needed: request `service {verb} HOST {shown}`"
            pages.add_outcome(Kind.TYPED, origin, note)
        else:
            pages.leave_out(origin, "it changes nothing on the host")
    return True


def _make_origin(file: Path, command: Command) -> Origin:
    text = command.description or shell_lines.find_title(command.text)
    return Origin(file, command.line, " ".join(text.split())[:120] or command.kind)


def _import_command(pages: Pages, file: Path, command: Command, names: dict[str, str]) -> None:
    origin = _make_origin(file, command)
    match command.kind:
        case "jobref":
            pages.ask(
                origin,
                "it runs another job: import that one too, and request it by itself",
                f"the job {command.text}",
            )
        case "scriptfile" | "scripturl":
            pages.ask(
                origin,
                "its script is in another place: put its lines into `script`",
                f"the script {command.text}",
            )
        case "exec" | "script" if command.text.strip():
            _carry(pages, origin, command, names)
        case _:
            pages.ask(
                origin,
                f"its kind is not one whose meaning is known: {command.kind} {command.text}",
                f"the {command.kind} {command.text}",
            )


def _carry(pages: Pages, origin: Origin, command: Command, names: dict[str, str]) -> None:
    code, problems = shell_lines.replace_values(command.text.strip(), _VALUE, names)
    shell = ""
    if command.arguments:
        problems.append(f"Rundeck gave it the arguments {command.arguments}")
    if command.kind == "script":
        first = code.splitlines()[0]
        if first.startswith("#!"):
            code = code.partition("\n")[2]
        given = command.interpreter or first.removeprefix("#!") * first.startswith("#!")
        name = given.replace("/usr/bin/env", "").strip().split(" ")[0].rpartition("/")[2]
        if name not in ("", "sh", "dash", "bash", "ksh"):
            problems.append(f"it is for {name}, and a host runs it with /bin/sh")
            name = ""
        shell = name
    pages.carry_code(origin, code, problems=problems, shell=shell)
