"""Describe many hosts, runbooks or people in few words. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from bot.policy import Policy
from bot.policy.explain import NO_APPROVER
from bot.policy.summary.probes import RequestKind

_MAX_NAMES_FACTOR = 3


def join_names(names: Iterable[str], last: str = "and") -> str:
    """Return `a, b and c`."""
    *front, end = list(names) or [""]
    return f"{', '.join(front)} {last} {end}" if front else end


def name_requests(requests: Collection[RequestKind], all_requests: Collection[RequestKind]) -> str:
    """Describe requests: `every check and every change that can be undone`."""
    parts = [
        _name_runbooks_of_kind(requests, all_requests, "check"),
        *_name_changes([one for one in requests if one.kind == "change"], all_requests),
    ]
    return join_names(part for part in parts if part)


def _name_changes(
    requests: Collection[RequestKind], all_requests: Collection[RequestKind]
) -> list[str]:
    all_reversible = {
        one.runbook for one in all_requests if one.kind == "change" and one.reversible
    }
    reversible = {one.runbook for one in requests if one.reversible}
    irreversible = {one.runbook for one in requests if not one.reversible}
    complete = {
        words for words in irreversible if words in reversible or words not in all_reversible
    }
    changes = sorted({one.runbook for one in all_requests if one.kind == "change"})
    if complete == set(changes):
        return [_name_runbooks(complete, changes, "change")]
    if reversible == all_reversible and not irreversible:
        return ["every change that can be undone"]
    if irreversible == set(changes) and not reversible:
        return ["every change that cannot be undone"]
    return [
        f"{named}{how}"
        for words, how in (
            (complete, ""),
            (reversible - complete, " where it can be undone"),
            (irreversible - complete, " where it cannot be undone"),
        )
        if (named := _name_runbooks(words, changes, "change"))
    ]


def _name_runbooks_of_kind(
    requests: Collection[RequestKind], all_requests: Collection[RequestKind], kind: str
) -> str:
    complete = sorted({one.runbook for one in all_requests if one.kind == kind})
    return _name_runbooks({one.runbook for one in requests if one.kind == kind}, complete, kind)


def _name_runbooks(runbooks: Collection[str], all_runbooks: Sequence[str], noun: str) -> str:
    others = [words for words in all_runbooks if words not in runbooks]
    if not runbooks:
        return ""
    if not others:
        return f"every {noun}"
    if len(others) < len(runbooks):
        return f"every {noun} but {join_names(_group_by_first_word(others, all_runbooks, noun))}"
    return join_names(_group_by_first_word(sorted(runbooks), all_runbooks, noun))


def _group_by_first_word(
    runbooks: Sequence[str], all_runbooks: Sequence[str], noun: str
) -> list[str]:
    """Shorten all runbooks with the same first word to `every “abusers *” change`."""
    found: list[str] = []
    for words in runbooks:
        first = words.split()[0]
        siblings = [other for other in all_runbooks if other.split()[0] == first]
        complete = len(siblings) > 1 and all(other in runbooks for other in siblings)
        name = f"every “{first} *” {noun}" if complete else f"“{words}”"
        if name not in found:
            found.append(name)
    return found


def name_hosts(hosts: Collection[str], policy: Policy) -> str:
    """Describe hosts: `everywhere`, `in the edge and storage`, `on lb1`."""
    inventory = {host.name: host for host in policy.inventory}
    if len(hosts) == len(inventory):
        return "everywhere"
    areas: dict[str, list[str]] = {}
    for name, host in inventory.items():
        areas.setdefault(host.area, []).append(name)
    complete = [area for area, names in areas.items() if all(name in hosts for name in names)]
    rest = [name for name in inventory if name in hosts and inventory[name].area not in complete]
    if rest and (tag := _find_common_tag(hosts, policy)):
        return f"on every host tagged {tag}"
    titles = [policy.organisation.areas[area].title for area in complete]
    parts = [f"in {join_names(titles)}"] if titles else []
    parts += [f"on {join_names(truncate_names(rest))}"] if rest else []
    return join_names(parts)


def _find_common_tag(hosts: Collection[str], policy: Policy) -> str:
    """Return a tag that exactly these hosts have, or ""."""
    tags = sorted({tag for host in policy.inventory for tag in host.tags})
    return next(
        (
            tag
            for tag in tags
            if {host.name for host in policy.inventory.list_tagged(tag)} == set(hosts)
        ),
        "",
    )


def truncate_names(all_names: Sequence[str]) -> Sequence[str]:
    """Return the first names and the number of the others."""
    most = 4 * _MAX_NAMES_FACTOR
    return (
        all_names
        if len(all_names) <= most
        else [*all_names[:most], f"{len(all_names) - most} more"]
    )


def name_roles(people: Sequence[str], policy: Policy) -> str:
    """Return the roles and areas that these people share: `administrator, owner of the edge`."""
    known = [policy.organisation.people[person] for person in people]
    shared = [role for role in known[0].roles if all(role in one.roles for one in known)]
    owned = [
        area.title
        for area in policy.organisation.areas.values()
        if all(person in area.owners for person in people)
    ]
    parts = [" and ".join(shared)] if shared else []
    parts += [f"owner of {join_names(owned)}"] if owned else []
    return ", ".join(parts) or "no role"


def name_approvers_by_area(approvers: Mapping[str, Sequence[str]]) -> str:
    """Return people by area: `the edge: Adam and Olga; storage: Stan`."""
    titles_by_names: dict[tuple[str, ...], list[str]] = {}
    for title, names in approvers.items():
        titles_by_names.setdefault(tuple(names), []).append(title)
    if len(titles_by_names) == 1:
        return _name_people(next(iter(titles_by_names)))
    return "; ".join(
        f"{join_names(titles)}: {_name_people(names)}" for names, titles in titles_by_names.items()
    )


def _name_people(names: Sequence[str]) -> str:
    return join_names(truncate_names(names), "or") if names else NO_APPROVER
