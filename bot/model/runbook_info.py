"""The description of a runbook for people who request it. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bot.model import request_form
from connectors.inventory import Host
from runbooks import AnyRunbook, load_catalogue
from runbooks._catalogue import get_kind, is_own


@dataclass(frozen=True)
class RunbookInfo:
    """The description of one runbook."""

    name: str
    kind: str
    summary: str
    usage: str
    """The command with its fields."""
    example: str
    tag: str
    """The tag that its hosts must have; "" for any host."""
    undo: str
    """What its undo does; "" for a check or an irreversible change."""
    fields: Sequence[tuple[str, str]]
    """Each field with its description."""
    areas: Sequence[str] = ()
    """The areas of its hosts."""
    is_custom: bool = False
    """Whether it belongs to this installation and is not included in Keyturn."""

    @property
    def effect(self) -> str:
        """Return check, change, or irreversible for a change without an undo."""
        return "irreversible" if self.kind == "change" and not self.undo else self.kind

    @property
    def form_fields(self) -> Sequence[request_form.FormField]:
        return request_form.list_form_fields(load_catalogue()[self.name])

    def format_help(self) -> str:
        """Return the description as text of several lines."""
        where = f"hosts tagged {self.tag}" if self.tag else "any host"
        areas = f", of the areas {', '.join(self.areas)}" if self.areas else ""
        own = " From your own runbooks." if self.is_custom else ""
        lines = [self.usage, f"  {self.summary}", f"  A {self.kind}, for {where}{areas}.{own}"]
        width = max(len(name) for name, _ in self.fields)
        lines += [f"    {name:<{width}}  {hint}" for name, hint in self.fields]
        lines.append(f"  For example: {self.example}")
        if self.kind == "change":
            lines.append(f"  Undo {self.undo}." if self.undo else "  It is irreversible.")
        return "\n".join(lines)


def list_runbook_info(prefix: str = "", *, hosts: Iterable[Host] = ()) -> list[RunbookInfo]:
    """Return the description of every runbook whose name begins with *prefix*, sorted by name.

    hosts: the hosts of the inventory, for the areas.
    """
    known = tuple(hosts)
    wanted = prefix.lower()
    return [
        _build_runbook_info(words, runbook, known)
        for words, runbook in load_catalogue().items()
        if not wanted or words == wanted or words.startswith(f"{wanted} ")
    ]


def _build_runbook_info(
    name: str, runbook: type[AnyRunbook], hosts: Sequence[Host]
) -> RunbookInfo:
    blanks = request_form.list_form_fields(runbook)
    tag = blanks[0].tag
    return RunbookInfo(
        name=name,
        kind=get_kind(runbook),
        summary=next(iter((runbook.__doc__ or "").strip().splitlines()), ""),
        usage=request_form.format_usage(runbook),
        example=f"{name} {runbook.example}",
        tag=tag,
        undo=runbook.undo,
        fields=[(blank.name, _format_hint(blank)) for blank in blanks],
        areas=sorted({host.area for host in hosts if not tag or tag in host.tags}),
        is_custom=is_own(runbook),
    )


def _format_hint(blank: request_form.FormField) -> str:
    choices = f" ({', '.join(blank.choices)})" if blank.choices else ""
    return f"{blank.hint}{choices}"
