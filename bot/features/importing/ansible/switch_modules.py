"""Modules of Ansible for what programs of a system turn on and off."""

from collections.abc import Callable, Mapping

from bot.features.importing.ansible.given import Given
from bot.features.importing.drafts import Draft, Origin, Unclear, show_marks
from bot.features.importing.kinds import firewalls, switches
from bot.features.importing.kinds.firewalls import UfwRule
from bot.features.importing.sources import is_false, is_true


def _carry_apache_module(draft: Draft, origin: Origin, given: Given) -> None:
    name, present, force = given.take("name"), given.take_presence(), given.take_flag("force")
    # How the module finds whether it is loaded, and of what it warns.
    for other in ("identifier", "ignore_configcheck", "warn_mpm_absent"):
        given.take(other)
    given.refuse_rest()
    switches.carry_apache_part(
        draft, origin, "mod", name, enabled=present, force=force and not present
    )


def _carry_ufw(draft: Draft, origin: Origin, given: Given) -> None:
    if given.take("rule") != "allow":
        raise Unclear("it is no rule that allows: one that is wrong would lock out")
    rule = UfwRule(
        port=given.take("port", "to_port"),
        proto=given.take("proto", "protocol"),
        source=given.take("from_ip", "from", "src"),
        to=given.take("to_ip", "to", "dest"),
        interface=given.take("interface", "if", "interface_in", "if_in"),
        app=given.take("name", "app"),
        comment=given.take("comment"),
    )
    given.refuse_unless("direction", "in", "incoming")
    given.refuse_unless("delete", "no", "false")
    given.refuse_rest()
    firewalls.carry_ufw_rule(draft, origin, rule)
    if rule.comment:
        given.notes.append("a rule that is there already keeps its comment")


def _carry_firewalld(draft: Draft, origin: Origin, given: Given) -> None:
    service, port, zone = given.take("service"), given.take("port"), given.take("zone")
    permanent = given.take_flag("permanent")
    now = given.take_flag("immediate") or not permanent
    state = given.take("state")
    given.refuse_unless("offline", "no", "false")
    given.refuse_rest()
    if state not in ("enabled", "present") or bool(service) == bool(port):
        raise Unclear("it does not allow one service or one port")
    kind, value = ("service", service) if service else ("port", port)
    for each in [*([True] if permanent else []), *([False] if now else [])]:
        firewalls.carry_firewalld(draft, origin, kind, value, zone, permanent=each)


def _carry_boolean(draft: Draft, origin: Origin, given: Given) -> None:
    name, value, kept = given.take("name"), given.take("state"), given.take_flag("persistent")
    given.refuse_unless("ignore_selinux_state", "no", "false")
    given.refuse_rest()
    if not (is_true(value) or is_false(value)):
        raise Unclear(f"its state {show_marks(value)[:40]!r} is neither yes nor no")
    switches.carry_boolean(draft, origin, name, wanted=is_true(value), persistent=kept)


def _carry_locale(draft: Draft, origin: Origin, given: Given) -> None:
    names, present = given.take_list("name"), given.take_presence()
    given.refuse_rest()
    if not present or given.facts["os_family"] != "Debian":
        raise Unclear("it takes locales out of /etc/locale.gen, or out of no such file")
    for name in names:
        switches.carry_locale(draft, origin, name)


SWITCH_MODULES: Mapping[str, Callable[[Draft, Origin, Given], None]] = {
    "apache2_module": _carry_apache_module,
    "seboolean": _carry_boolean,
    "locale_gen": _carry_locale,
    "ufw": _carry_ufw,
    "firewalld": _carry_firewalld,
}
