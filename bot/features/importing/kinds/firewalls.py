"""Rules of firewalls that allow something, of ufw and firewalld. None that denies is carried over.

A rule that allows takes no access away. Its undo could, so one for ssh has none.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_network

from bot.features.importing.drafts import Draft, Origin, Unclear, has_mark, run_as_root, show_marks

_PORTS = "[0-9]{1,5}(:[0-9]{1,5})?(,[0-9]{1,5}(:[0-9]{1,5})?)*"
_NAME = "[A-Za-z][A-Za-z0-9._+-]{0,60}( [A-Za-z0-9._+-]{1,60}){0,5}"
_COMMENT = "[A-Za-z0-9_.,:/ -]{1,100}"
_UFW = "/usr/sbin/ufw"
# What ufw takes for a port by /etc/services, for TCP or also UDP.
_SERVICES = {"ssh": "22", "http": "80", "https": "443"}
_OF_SSH = "access to the host may depend on it by now: remove it by hand"


@dataclass(frozen=True)
class UfwRule:
    """What a rule of ufw allows to come in; "" for anything."""

    port: str = ""
    proto: str = ""
    source: str = ""
    to: str = ""
    interface: str = ""
    app: str = ""
    comment: str = ""

    def make_words(self) -> list[str]:
        """Return the words after `ufw allow`, as `ufw show added` has them.

        As UFWCommandRule.get_command does in ufw's src/parser.py.
        """
        if not (self.source or self.to or self.interface):
            return [self.app or (f"{self.port}/{self.proto}" if self.proto else self.port)]
        words = ["in", "on", self.interface] if self.interface else []
        words += ["from", self.source] if self.source else []
        if self.to or self.port or self.app:
            words += ["to", self.to or "any"]
        words += ["app", self.app] if self.app else ["port", self.port] if self.port else []
        return words + (["proto", self.proto] if self.proto and not self.app else [])

    @property
    def is_of_ssh(self) -> bool:
        """Whether logins may come by it."""
        if not self.port:
            return not self.app or "ssh" in self.app.lower()
        return has_mark(self.port) or any(map(_has_ssh_port, self.port.split(",")))


def _has_ssh_port(ports: str) -> bool:
    """Return whether 22 is a port, or one of A:B."""
    first, _, last = ports.partition(":")
    return int(first) <= 22 <= int(last or first)


def read_ufw_words(words: Sequence[str]) -> UfwRule | None:
    """Return what `ufw allow` is given; None for what is not read."""
    rule, rest = UfwRule(), [*words]
    if len(rest) > 2 and rest[-2] == "comment":
        rule, rest = replace(rule, comment=rest[-1]), rest[:-2]
    if len(rest) == 1:
        port, _, proto = rest[0].partition("/")
        is_app = re.match("[A-Za-z]", port)
        return replace(rule, app=rest[0]) if is_app else replace(rule, port=port, proto=proto)
    if rest[:1] == ["in"]:
        rest = rest[1:]
    names = {"on": "interface", "from": "source", "to": "to", "port": "port", "proto": "proto",
             "app": "app"}  # fmt: skip
    for at in range(0, len(rest), 2):
        key = names.get(rest[at])
        # The port after `from` is the one of the other side.
        is_odd = rest[at] in ("port", "app") and "to" not in rest[:at]
        if key is None or is_odd or at + 1 >= len(rest) or getattr(rule, key):
            return None
        rule = replace(rule, **{key: rest[at + 1]})
    return rule if rest else None


def carry_ufw_rule(draft: Draft, origin: Origin, rule: UfwRule) -> None:
    """Have ufw allow something to come in."""
    rule = _check_rule(draft, rule)
    words = rule.make_words()
    shown, marked = " ".join(words), " ".join(f"'{one}'" if " " in one else one for one in words)
    read = {"run": [_UFW, "show", "added"], "root": True, "as": "lines"}
    found = draft.add_reading("ufw_rules", {**read, "pattern": "(?P<line>.*)"})
    # ufw takes a name of these for TCP, or also for UDP, as /etc/services has it.
    port = _SERVICES.get(shown)
    lines = [marked] if port is None else [port, f"{port}/tcp"]
    is_there = draft.add_state("ufw_allows", _find_rule(draft, found, "allow", lines))
    others = " || ".join(
        _find_rule(draft, found, verb, lines) for verb in ("deny", "reject", "limit")
    )
    because = f"ufw has another rule for {draft.text(shown)}, which this one would replace"
    draft.refuse.append({"when": others, "because": because})
    draft.current.append(
        f"ufw {{{is_there} ? 'allows' : 'has no rule that allows'}} {draft.text(shown)}"
    )
    comment = ["comment", draft.word(rule.comment)] if rule.comment else []
    command = [draft.word(one) for one in words]
    add = run_as_root(_UFW, "allow", *command, *comment)
    remove = {"undo": run_as_root(_UFW, "delete", "allow", *command)}
    draft.claim(f"the rule of ufw for {shown}", "allow")
    draft.add_step(
        origin,
        {
            "title": f"Have ufw allow {draft.text(shown)}",
            "when": f"!{is_there}",
            "do": add,
            **({"no_undo": _OF_SSH} if rule.is_of_ssh else remove),
            "before": "no such rule",
            "after": "allowed",
        },
    )


def _find_rule(draft: Draft, found: str, verb: str, lines: Sequence[str]) -> str:
    """Return the expression that there is a rule, with any comment."""
    texts = [draft.expression(f"ufw {verb} {line}") for line in lines]
    commented = [draft.expression(f"ufw {verb} {line} comment ") for line in lines]
    parts = [f"row.line == {one}" for one in texts]
    parts += [f"row.line.startsWith({one})" for one in commented]
    return f"{found}.exists(row, {' || '.join(parts)})"


def _check_rule(draft: Draft, rule: UfwRule) -> UfwRule:
    """Return a rule as ufw keeps it. Raises Unclear."""
    rule = replace(
        rule,
        source=_read_address(rule.source),
        to=_read_address(rule.to),
        proto=rule.proto.replace("any", ""),
    )
    if rule.port:
        draft.check_value(rule.port, _PORTS, "a port")
        rule = replace(rule, port=",".join(sorted(rule.port.split(","), key=_read_port)))
    if re.search("[:,]", rule.port) and not rule.proto:
        raise Unclear("several ports need a protocol")
    if rule.proto not in ("", "tcp", "udp"):
        raise Unclear(f"the protocol {show_marks(rule.proto)[:40]!r} is not read")
    for text, pattern, what in (
        (rule.app, _NAME, "the name of an application"),
        (rule.interface, "[a-z][a-z0-9.@_-]{0,14}", "the name of an interface"),
        (rule.comment, _COMMENT, "a plain comment"),
    ):
        if text and not re.fullmatch(pattern, text):
            raise Unclear(f"{show_marks(text)[:80]!r} is not {what}")
    if not rule.make_words()[0] or (rule.app and rule.port):
        raise Unclear("it allows anything, or an application and a port")
    if rule.app[:1].islower() and rule.app not in _SERVICES:
        raise Unclear(f"which ports {rule.app} has, /etc/services of the host says")
    return rule


def _read_port(port: str) -> int:
    return 0 if has_mark(port) else int(port.partition(":")[0])


def _read_address(address: str) -> str:
    """Return an address or a network as ufw keeps it; "" for any. Raises Unclear."""
    if address in ("", "any", "0.0.0.0/0", "::/0"):
        return ""
    try:
        network = ip_network(address)
    except ValueError:
        raise Unclear(f"{show_marks(address)[:60]!r} is not an address or a network") from None
    is_one = network.num_addresses == 1
    return str(network.network_address) if is_one else str(network)


def carry_firewalld(
    draft: Draft, origin: Origin, kind: str, value: str, zone: str, *, permanent: bool
) -> None:
    """Have firewalld allow a service or a port, now or at its next start.

    kind: service or port. zone: "" for the default one.
    """
    pattern = (
        "[a-z][a-z0-9_-]{0,60}" if kind == "service" else "[0-9]{1,5}(-[0-9]{1,5})?/(tcp|udp)"
    )
    draft.check_value(value, pattern, f"a {kind} of firewalld")
    if zone and not re.fullmatch("[A-Za-z][A-Za-z0-9_-]{0,16}", zone):
        raise Unclear(f"{show_marks(zone)[:40]!r} is not the name of a zone")
    where = [*(["--permanent"] if permanent else []), *([f"--zone={zone}"] if zone else [])]
    word, shown = draft.word(value), draft.text(value)
    program = "/usr/bin/firewall-cmd"
    run = [program, *where, f"--query-{kind}={word}"]
    # It prints no, and its status is 1.
    reading = {"run": run, "root": True, "statuses": [0, 1], "as": "text", "pattern": "yes|no"}
    found = draft.add_reading(f"{'permanent' if permanent else 'now'}_{value}", reading)
    when = "at its next start" if permanent else "now"
    place = f" in the zone {zone}" if zone else ""
    draft.current.append(f"firewalld allows {shown}{place} {when}: {{{found}}}")
    draft.claim(f"whether firewalld allows {value}{place} {when}", "yes")
    is_of_ssh = value == "ssh" or has_mark(value)
    if kind == "port" and not is_of_ssh:
        is_of_ssh = _has_ssh_port(value.partition("/")[0].replace("-", ":"))
    remove = {"undo": run_as_root(program, *where, f"--remove-{kind}={word}")}
    draft.add_step(
        origin,
        {
            "title": f"Have firewalld allow {shown}{place} {when}",
            "when": f'{found} == "no"',
            "do": run_as_root(program, *where, f"--add-{kind}={word}"),
            **({"no_undo": _OF_SSH} if is_of_ssh else remove),
            "before": "not allowed",
            "after": "allowed",
        },
    )
