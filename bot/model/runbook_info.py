"""A leaflet: all that a person needs to know to ask for a runbook. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bot.model import request_form
from connectors.inventory import Host
from runbooks import AnyRunbook, load_catalogue
from runbooks._catalogue import get_kind, is_own


@dataclass(frozen=True)
class RunbookInfo:
    """One runbook as people are told of it.

    usage: how it is typed. fields: each with what belongs into it. tag: hosts must carry it; ""
    for any host. areas: where such hosts are. undo: what its undo does; "" for a check, and where
    there is none. own: whether it is this installation's, and did not come with Keyturn.
    """

    name: str
    kind: str
    summary: str
    usage: str
    example: str
    tag: str
    undo: str
    fields: Sequence[tuple[str, str]]
    areas: Sequence[str] = ()
    is_custom: bool = False

    @property
    def effect(self) -> str:
        """Return check, change, or one-way for a change that cannot be undone."""
        return "one-way" if self.kind == "change" and not self.undo else self.kind

    def format_help(self) -> str:
        """Return it as text of several lines."""
        where = f"hosts tagged {self.tag}" if self.tag else "any host"
        areas = f", of the areas {', '.join(self.areas)}" if self.areas else ""
        own = " Of your own." if self.is_custom else ""
        lines = [self.usage, f"  {self.summary}", f"  A {self.kind}, for {where}{areas}.{own}"]
        width = max(len(name) for name, _ in self.fields)
        lines += [f"    {name:<{width}}  {hint}" for name, hint in self.fields]
        lines.append(f"  For example: {self.example}")
        if self.kind == "change":
            lines.append(f"  Its undo {self.undo}." if self.undo else "  It cannot be undone.")
        return "\n".join(lines)


def list_runbook_info(prefix: str = "", *, hosts: Iterable[Host] = ()) -> list[RunbookInfo]:
    """Return the leaflets of every runbook whose words begin so, in the order of their words.

    hosts: the inventory's, from which they tell the areas.
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
        summary=(runbook.__doc__ or "").strip().splitlines()[0],
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
