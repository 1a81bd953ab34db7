"""Systems for which drafts are made: facts that Ansible has of their hosts, and how to read them.

Facts: https://docs.ansible.com/ansible/latest/playbook_guide/playbooks_vars_facts.html
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from bot.features.importing.ansible.template_values import Facts
from bot.features.importing.drafts import Draft

_OF_VERSION = frozenset(
    {"distribution_major_version", "distribution_version", "distribution_release"}
)
# What is no question of the system: read by itself, or the same on each.
_OF_ALL = frozenset({"architecture", "python_version", "user_id", "user_dir", "env"})


@dataclass(frozen=True)
class System:
    """A system as os-release and Ansible name it."""

    id: str
    version: str
    facts: Mapping[str, str]

    def make_facts(self) -> Facts:
        return Facts(self.facts)

    def guard(self, draft: Draft, used: set[str]) -> None:
        """Refuse hosts that have other facts than those that were used."""
        if "architecture" in used:
            wanted = self.facts["architecture"]
            name = draft.add_reading("machine", {"run": ["uname", "-m"], "as": "text"})
            because = f"this was made for hosts with {wanted}, and it has {{{name}}}"
            draft.refuse.append({"when": f'{name} != "{wanted}"', "because": because})
        if not used - _OF_ALL:
            return
        lines = [("ID", self.id), *([("VERSION_ID", self.version)] if used & _OF_VERSION else [])]
        reading = {"file": "/etc/os-release", "as": "lines", "pattern": "(?P<line>.*)"}
        name = draft.add_reading("os_release", reading)
        for key, value in lines:
            # Its values may be in quotation marks.
            number = re.escape(value) + (
                "(.[0-9]+)?" if self.facts["os_family"] == "RedHat" else ""
            )
            pattern = json.dumps(f"^{key}=['\"]?{number if key == 'VERSION_ID' else value}['\"]?$")
            is_so = f"row.line.matches({pattern})"
            shown = f"{self.id} {self.version if key == 'VERSION_ID' else ''}".strip()
            draft.refuse.append(
                {
                    "when": f"!{name}.exists(row, {is_so})",
                    "because": f"this was made for hosts with {shown}: import it for this system",
                }
            )


def _make(system: str, version: str, family: str, name: str, manager: str, **more: str) -> System:
    facts = {"os_family": family, "distribution": name, "pkg_mgr": manager, "system": "Linux"}
    major = version.partition(".")[0]
    facts |= {"distribution_major_version": major, "service_mgr": "systemd", **more}
    facts["architecture"] = "x86_64"
    return System(system, version, facts)


SYSTEMS: Mapping[str, System] = {
    "debian12": _make(
        "debian", "12", "Debian", "Debian", "apt", distribution_release="bookworm"
    ),
    "debian13": _make("debian", "13", "Debian", "Debian", "apt", distribution_release="trixie"),
    **{
        f"ubuntu{version}": _make(
            "ubuntu", version, "Debian", "Ubuntu", "apt",
            distribution_version=version, distribution_release=release,
        )
        for version, release in (("22.04", "jammy"), ("24.04", "noble"))
    },
    **{
        f"{system}{version}": _make(system, version, "RedHat", name, "dnf")
        for system, name in (("rhel", "RedHat"), ("rocky", "Rocky"), ("almalinux", "AlmaLinux"))
        for version in ("8", "9")
    },
}  # fmt: skip
DEFAULT_SYSTEM = "debian12"
