"""What becomes of steps that other projects publish.

Each row is a fact of a public file: its module with the arguments, or its command line, with the
repository at github.com and its licence. No file is copied.
"""

import json
from pathlib import Path

import pytest

from bot.features.importing.ansible import import_ansible
from bot.features.importing.rundeck import import_rundeck

OVER, BLIND, OUT = "carried over", "blind", "left out"

TASKS = [
    # geerlingguy/ansible-for-devops, MIT
    ("dnf: {name: dnf-automatic, state: present}", OVER, "Install the package dnf-automatic"),
    (
        "service: {name: dnf-automatic-install.timer, state: started, enabled: yes}",
        OUT,
        "is not the name of a service",
    ),
    ("service: {name: fail2ban, state: started, enabled: yes}", OVER, "Have fail2ban start at"),
    (
        "file: {path: /var/log/messages, owner: root, group: root, mode: 0600}",
        OVER,
        "Set the mode of /var/log/messages to 600",
    ),
    (
        "lineinfile: {dest: /etc/ssh/sshd_config, regexp: '^Port', line: Port 2849, "
        "validate: 'sshd -t -f %s'}",
        OUT,
        "it tries the file before it is used",
    ),
    (
        "lineinfile: {dest: /etc/sudoers, regexp: '^johndoe', "
        "line: 'johndoe ALL=(ALL) NOPASSWD: ALL'}",
        OUT,
        "access to a host may depend on /etc/sudoers",
    ),
    (
        "service: {name: firewalld, state: stopped}",
        OUT,
        "access to a host may depend on firewalld",
    ),
    ("dnf: {name: npm, state: present, enablerepo: epel}", OUT, "its argument enablerepo"),
    (
        "command: mv /tmp/composer.phar /usr/local/bin/composer creates=/usr/local/bin/composer",
        OVER,
        "only the file shows that these lines ran",
    ),
    (
        "{get_url: {url: 'https://getcomposer.org/installer', dest: /tmp/x.php}}",
        OUT,
        "get_url has no plain meaning",
    ),
    # ansible/ansible-examples, no licence file: facts only
    ("group: name=tomcat", OVER, "Add the group tomcat"),
    (
        "user: name=tomcat group=tomcat home=/usr/share/tomcat createhome=no",
        OVER,
        "Set the first group of tomcat to tomcat",
    ),
    (
        "file: src=/opt/apache-tomcat-7.0.61 path=/usr/share/tomcat state=link",
        OVER,
        "Change the link /usr/share/tomcat",
    ),
    ("file: path=/usr/share/jboss-as owner=jboss recurse=yes state=directory", OUT, "recurse"),
    (
        "firewalld: port=8080/tcp permanent=true state=enabled",
        OUT,
        "firewalld has no plain meaning",
    ),
    # kubernetes-sigs/kubespray, Apache-2.0
    (
        "service: {name: crio, daemon_reload: true, enabled: true, state: started}",
        OVER,
        "service_crio.needs_reload",
    ),
    ("systemd_service: {daemon_reload: true}", OUT, "no step before it changes a unit file"),
    ("{systemd: {name: dbus}, register: found, failed_when: false}", OUT, "it asks for no state"),
    (
        "{service: {name: etcd, state: stopped, enabled: false}, failed_when: false}",
        OVER,
        "Ansible went on if it failed; Keyturn stops there",
    ),
    ("file: {path: /etc/cni, state: absent}", OVER, "what is removed is not kept"),
    ("iptables: {table: filter, chain: INPUT, policy: ACCEPT}", OUT, "iptables has no plain"),
    # konstruktoid/ansible-role-hardening, Apache-2.0
    ("systemd_service: {name: apport, masked: true, enabled: false}", OVER, "Mask apport"),
    ("apt: {autoremove: true}", OUT, "autoremove"),
    (
        "file: {path: /run/sshd, state: directory, owner: root, mode: 'u=rwx,g=rx,o=rx'}",
        OVER,
        "Set the mode of /run/sshd to 755",
    ),
    # ansible-lockdown/RHEL7-CIS, MIT
    (
        "{shell: 'nft list tables | grep inet', changed_when: false, register: found}",
        OUT,
        "it only reads",
    ),
    ("command: nft create table inet filter", BLIND, "nft create table inet filter"),
    # k3s-io/k3s-ansible, Apache-2.0
    ("systemd: {name: k3s, state: restarted}", OUT, "request: service restart HOST k3s"),
    # jnv/ansible-role-unattended-upgrades, GPL-2.0: a fact only
    ("apt: {pkg: , state: present, update_cache: yes}", OUT, "is not the name of one package"),
    # dev-sec/ansible-collection-hardening, Apache-2.0
    ("service: {name: '{{ name }}', enabled: no}", OUT, "may be the one for logins"),
    # geerlingguy/ansible-role-ntp and -nginx, MIT
    ("timezone: {name: Etc/UTC}", OVER, "/usr/share/zoneinfo/Etc/UTC"),
    ("service: {name: nginx, state: started, enabled: '{{ on }}'}", OUT, "neither yes nor no"),
    # viasite-ansible/ansible-role-zsh, MIT
    ("git: {repo: 'https://github.com/zsh-users/antigen.git', dest: /opt/a}", OUT, "git has no"),
    # cloudalchemy/ansible-node-exporter, MIT
    ("{fail: {msg: only systemd}, when: ansible_service_mgr != 'systemd'}", OUT, "`refuse`"),
]
LINES = [
    # jmrenouard/rundeck-training, no licence file: facts only
    ("mkdir -p /var/backups/mysql", OVER, "Create the directory /var/backups/mysql"),
    ("docker pull registry/app", BLIND, "docker pull registry/app"),
    ("systemctl is-active nginx | grep -q inactive && reboot", BLIND, "reboot"),
    # datnguyendv/rundeck-automation, no licence file: facts only
    ("sudo apt-get update", BLIND, "apt-get update"),
    # rundeck/rundeck, Apache-2.0
    ("sudo usermod -aG docker rundeck", OVER, "Add rundeck to the group docker"),
]


@pytest.mark.parametrize(("task", "became", "said"), TASKS)
def test_public_task_becomes_what_its_module_does(
    tmp_path: Path, task: str, became: str, said: str
):
    file = tmp_path / "tasks.yml"
    file.write_text(f"- {task}\n")
    (job,) = import_ansible(file, set())
    (outcome,) = (one for one in job.outcomes if not one.is_setting)
    shown = " ".join([outcome.note, *(draft.render() for draft in job.drafts)])
    assert (str(outcome.kind), said in " ".join(shown.split())) == (became, True), shown


@pytest.mark.parametrize(("line", "became", "said"), LINES)
def test_public_line_becomes_what_its_command_does(
    tmp_path: Path, line: str, became: str, said: str
):
    file = tmp_path / "jobs.yaml"
    file.write_text(json.dumps([{"name": "job", "sequence": {"commands": [{"exec": line}]}}]))
    (job,) = import_rundeck(file, set())
    (outcome,) = job.outcomes
    shown = " ".join([outcome.note, *(draft.render() for draft in job.drafts)])
    assert (str(outcome.kind), said in " ".join(shown.split())) == (became, True), shown


ROLE = {
    "tasks/main.yml": "- file: {path: '{{ place }}', state: directory}\n"
    "- copy: {dest: /x/a, content: '{{ port }}'}\n"
    "- copy: {dest: /x/b, content: 'on is {{ flag }}'}\n"
    "- apt: {name: '{{ packages }}'}\n"
    "- user: {name: '{{ item }}'}\n  loop: '{{ people }}'\n"
    "- file: {path: '/x/{{ version }}', state: directory}\n"
    "- set_fact: {version: 2}\n"
    "- include_vars: '{{ ansible_os_family }}.yml'\n",
    "defaults/main.yml": "base: /srv\nplace: '{{ base }}/www'\nport: '80'\nflag: yes\n"
    "packages: [nginx]\npeople: []\nversion: 1\n",
    "vars/Debian.yml": "port: '8080'\n",
}


def test_values_of_a_role_are_used_where_nothing_else_sets_them(tmp_path: Path):
    """And never where another file, a task or the inventory does so, or YAML 1.1 reads another."""
    for name, text in ROLE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (job,) = import_ansible(tmp_path / "tasks" / "main.yml", set())
    page = " ".join(" ".join(draft.render().split()) for draft in job.drafts)
    notes = [one.note for one in job.outcomes]
    assert "Create the directory /srv/www" in page
    assert "{port}" in page, "vars/Debian.yml may set it"
    assert any("writes as True or False" in note for note in notes)
    assert any("loops over values that are not in the file" in note for note in notes)
    assert "Create the directory /x/{version}" in page, "a task sets it"
    assert "does no inventory set other values than the defaults of" in page
    assert "place" in next(one.note for one in job.outcomes if one.what == "defaults of the role")
