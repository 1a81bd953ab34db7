"""Naming: many hosts, runbooks or people as few words. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from bot.policy import Policy
from bot.policy.summary.probes import RequestKind

_MAX_NAMES_FACTOR = 3


def join_names(names: Iterable[str], last: str = "and") -> str:
    """Return `a, b and c`."""
    *front, end = list(names) or [""]
    return f"{', '.join(front)} {last} {end}" if front else end


def name_requests(requests: Collection[RequestKind], all_requests: Collection[RequestKind]) -> str:
    """Name what may be done: `every check and every change that can be undone`."""
    parts = [
        _name_runbooks_of_kind(requests, all_requests, "check"),
        *_name_changes([deed for deed in requests if deed.kind == "change"], all_requests),
    ]
    return join_names(part for part in parts if part)


def _name_changes(
    requests: Collection[RequestKind], all_requests: Collection[RequestKind]
) -> list[str]:
    all_back = {deed.runbook for deed in all_requests if deed.kind == "change" and deed.reversible}
    back = {deed.runbook for deed in requests if deed.reversible}
    lasting = {deed.runbook for deed in requests if not deed.reversible}
    whole = {words for words in lasting if words in back or words not in all_back}
    changes = sorted({deed.runbook for deed in all_requests if deed.kind == "change"})
    if whole == set(changes):
        return [_name_runbooks(whole, changes, "change")]
    if back == all_back and not lasting:
        return ["every change that can be undone"]
    if lasting == set(changes) and not back:
        return ["every change that cannot be undone"]
    return [
        f"{named}{how}"
        for words, how in (
            (whole, ""),
            (back - whole, " where it can be undone"),
            (lasting - whole, " where it cannot be undone"),
        )
        if (named := _name_runbooks(words, changes, "change"))
    ]


def _name_runbooks_of_kind(
    requests: Collection[RequestKind], all_requests: Collection[RequestKind], kind: str
) -> str:
    whole = sorted({deed.runbook for deed in all_requests if deed.kind == kind})
    return _name_runbooks({deed.runbook for deed in requests if deed.kind == kind}, whole, kind)


def _name_runbooks(runbooks: Collection[str], all_runbooks: Sequence[str], noun: str) -> str:
    left = [words for words in all_runbooks if words not in runbooks]
    if not runbooks:
        return ""
    if not left:
        return f"every {noun}"
    if len(left) < len(runbooks):
        return f"every {noun} but {join_names(_group_by_first_word(left, all_runbooks, noun))}"
    return join_names(_group_by_first_word(sorted(runbooks), all_runbooks, noun))


def _group_by_first_word(
    runbooks: Sequence[str], all_runbooks: Sequence[str], noun: str
) -> list[str]:
    """Shorten runbooks that begin alike to `every “abusers *” change`, if none is missing."""
    found: list[str] = []
    for words in runbooks:
        first = words.split()[0]
        family = [other for other in all_runbooks if other.split()[0] == first]
        whole = len(family) > 1 and all(other in runbooks for other in family)
        name = f"every “{first} *” {noun}" if whole else f"“{words}”"
        if name not in found:
            found.append(name)
    return found


def name_hosts(hosts: Collection[str], policy: Policy) -> str:
    """Name the hosts: `everywhere`, `in the edge and storage`, `on lb1`."""
    inventory = {host.name: host for host in policy.inventory}
    if len(hosts) == len(inventory):
        return "everywhere"
    areas: dict[str, list[str]] = {}
    for name, host in inventory.items():
        areas.setdefault(host.area, []).append(name)
    whole = [area for area, names in areas.items() if all(name in hosts for name in names)]
    rest = [name for name in inventory if name in hosts and inventory[name].area not in whole]
    if rest and (tag := _find_common_tag(hosts, policy)):
        return f"on every host tagged {tag}"
    titles = [policy.organisation.areas[area].title for area in whole]
    parts = [f"in {join_names(titles)}"] if titles else []
    parts += [f"on {join_names(truncate_names(rest))}"] if rest else []
    return join_names(parts)


def _find_common_tag(hosts: Collection[str], policy: Policy) -> str:
    """Return the tag that these hosts have and no other; "" if there is none."""
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
    """Return the first names, and how many more there are."""
    most = 4 * _MAX_NAMES_FACTOR
    return (
        all_names
        if len(all_names) <= most
        else [*all_names[:most], f"{len(all_names) - most} more"]
    )


def name_roles(people: Sequence[str], policy: Policy) -> str:
    """Say what these people have in common: `administrator, owner of the edge`."""
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
    """Name people by area: `the edge: Adam and Olga; storage: Stan`; alike areas as one."""
    together: dict[tuple[str, ...], list[str]] = {}
    for title, names in approvers.items():
        together.setdefault(tuple(names), []).append(title)
    if len(together) == 1:
        return _name_people(next(iter(together)))
    return "; ".join(
        f"{join_names(titles)}: {_name_people(names)}" for names, titles in together.items()
    )


def _name_people(names: Sequence[str]) -> str:
    return join_names(truncate_names(names), "or") if names else "nobody, as the policy is now"
