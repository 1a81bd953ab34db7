"""What becomes of steps that other projects publish.

Each row is a fact of a public file: its module with the arguments, or its command line, with the
repository at github.com and its licence. No file is copied.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from bot.features.importing.ansible.importer import import_ansible, read_target
from bot.features.importing.pages import Imported
from bot.features.importing.rundeck import import_rundeck
from bot.features.importing.sources import SourceError

OVER, BLIND, OUT = "carried over", "blind", "left out"

TASKS = [
    # geerlingguy/ansible-for-devops, MIT
    ("dnf: {name: dnf-automatic, state: present}", OVER, "Install the package dnf-automatic"),
    (
        "service: {name: dnf-automatic-install.timer, state: started, enabled: yes}",
        OVER,
        "systemctl",
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
        OVER,
        "restore: |- FILES=/etc/ssh/sshd_config UNITS='ssh sshd'",
    ),
    (
        "lineinfile: {dest: /etc/sudoers, regexp: '^johndoe', "
        "line: 'johndoe ALL=(ALL) NOPASSWD: ALL'}",
        OVER,
        "TRIAL='/usr/sbin/visudo -cf'",
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
        OVER,
        "has no checksum: no one sees before what it gives",
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
    (
        "file: path=/usr/share/jboss-as owner=jboss recurse=yes state=directory",
        OVER,
        "Ansible would also change what they point to",
    ),
    (
        "firewalld: port=8080/tcp permanent=true state=enabled",
        OVER,
        "Have firewalld allow 8080/tcp at its next start",
    ),
    (
        "firewalld: {service: https, permanent: true, immediate: true, state: enabled}",
        OVER,
        "Have firewalld allow https now",
    ),
    ("firewalld: {service: x, state: disabled}", OUT, "it does not allow one service or one port"),
    ("firewalld: {service: ssh, state: enabled}", OVER, "access to the host may depend on it by"),
    ("ufw: {rule: allow, port: '443,80', proto: tcp}", OVER, "ufw allow 80,443/tcp"),
    (
        "community.general.ufw: {rule: allow, src: 10.0.0.0/8, port: 5432, proto: tcp}",
        OVER,
        "ufw allow from 10.0.0.0/8 to any port 5432 proto tcp",
    ),
    ("ufw: {rule: allow, port: '20:30', proto: tcp}", OVER, "access to the host may depend on it"),
    ("ufw: {rule: allow, from_ip: 10.0.0.1/8}", OUT, "is not an address or a network"),
    ("ufw: {rule: allow, port: '80,443'}", OUT, "several ports need a protocol"),
    ("ufw: {rule: allow}", OUT, "it allows anything"),
    ("ufw: {rule: allow, name: '-x'}", OUT, "is not the name of an application"),
    ("ufw: {rule: limit, port: 22}", OUT, "one that is wrong would lock out"),
    ("ufw: {state: enabled, policy: deny}", OUT, "one that is wrong would lock out"),
    ("ufw: {rule: allow, port: 22, delete: yes}", OUT, "its argument delete is not read"),
    ("ufw: {rule: allow, port: 22, insert: 1}", OUT, "its argument insert is not read"),
    (
        "seboolean: {name: httpd_can_network_connect, state: yes, persistent: yes}",
        OVER,
        "- /usr/sbin/setsebool - -P - httpd_can_network_connect - on",
    ),
    (
        "seboolean: {name: samba_x, state: no}",
        OVER,
        "Turn the boolean samba_x off, until the next",
    ),
    ("seboolean: {name: samba_x, state: maybe}", OUT, "is neither yes nor no"),
    ("seboolean: {name: '-P', state: yes}", OUT, "is not the name of a boolean"),
    ("locale_gen: {name: de_DE.UTF-8}", OVER, "Generate the locale de_DE.UTF-8"),
    ("locale_gen: {name: de_DE@euro}", OUT, "is not the name of a locale in UTF-8"),
    ("locale_gen: {name: de_DE.UTF-8, state: absent}", OUT, "out of /etc/locale.gen"),
    (
        "deb822_repository: {name: Docker, types: [deb], uris: 'https://x/y', suites: bookworm, "
        "components: [main, stable], signed_by: /etc/apt/keyrings/x.asc}",
        OVER,
        "Components: main stable X-Repolib-Name: Docker Signed-By: /etc/apt/keyrings/x.asc "
        "Suites: bookworm Types: deb URIs: https://x/y",
    ),
    (
        "deb822_repository: {name: x, uris: 'https://x', suites: y, signed_by: 'https://x/key'}",
        OUT,
        "its key is fetched in each run",
    ),
    ("deb822_repository: {name: x, state: absent}", OUT, "it is no source"),
    ("apt_key: {url: 'https://x/key', state: present}", OUT, "apt_key has no plain meaning"),
    ("yum_repository: {name: x, description: y, baseurl: z, password: p}", OUT, "password is not"),
    ("yum_repository: {name: ../x, description: y, baseurl: z}", OUT, "no source with a plain n"),
    ("yum_repository: {name: x, state: absent}", OUT, "that is to be there"),
    ("dpkg_selections: {name: x, selection: purge}", OUT, "dpkg would remove the package"),
    ("apache2_module: {name: cgi}", OUT, "a2enmod takes the module cgid for cgi"),
    (
        "apache2_module: {name: '../x'}",
        OUT,
        "is not the name of a mod of Apache",
    ),
    # kubernetes-sigs/kubespray, Apache-2.0
    (
        "service: {name: crio, daemon_reload: true, enabled: true, state: started}",
        OVER,
        "service_crio.needs_reload",
    ),
    ("systemd_service: {daemon_reload: true}", OUT, "no step before it changes a unit file"),
    ("{systemd: {name: dbus}, register: found, failed_when: false}", OUT, "changes nothing on"),
    ("{uri: {url: 'https://x/y', method: POST, body: z}}", OUT, "uri has no plain meaning"),
    ("{uri: {url: 'https://x/y', return_content: yes}, register: r}", OUT, "changes nothing on"),
    ("{community.crypto.x509_certificate_info: {path: /x}}", OUT, "changes nothing on the host"),
    ("{fetch: {src: /x, dest: /y}}", OUT, "on the machine where Ansible runs"),
    (
        "{service: {name: etcd, state: stopped, enabled: false}, failed_when: false}",
        OVER,
        "Ansible went on or tried again if it failed; Keyturn stops there",
    ),
    ("file: {path: /etc/cni, state: absent}", OVER, "what is removed is not kept"),
    # ceph/ceph-ansible, Apache-2.0
    (
        "{set_fact: {a: b}, delegate_to: '{{ item }}', delegate_facts: true, with_items: [c]}",
        OUT,
        "it only computes values",
    ),
    ("iptables: {table: filter, chain: INPUT, policy: ACCEPT}", OUT, "iptables has no plain"),
    # konstruktoid/ansible-role-hardening, Apache-2.0
    ("systemd_service: {name: apport, masked: true, enabled: false}", OVER, "Mask apport"),
    ("apt: {autoremove: true}", OVER, "Remove packages that nothing needs"),
    ("apt: {autoclean: yes}", OUT, "which old files of them there are, only root reads"),
    ("apt: {name: x, state: latest, default_release: sid}", OUT, "the newest version of one rel"),
    ("apt: {name: x, dpkg_options: force-all}", OUT, "'force-all' of dpkg is not read"),
    ("apt: {name: 'x=1.*'}", OUT, "is not one version of a package"),
    ("apt: {update_cache: yes, cache_valid_time: a}", OUT, "is no number of seconds"),
    ("dnf: {name: x, state: latest}", OUT, "depends on what there is to install"),
    ("dnf: {name: x, update_cache: yes}", OVER, "dnf reads its lists by itself"),
    ("apt: {upgrade: safe}", OVER, "Ansible takes aptitude instead of apt-get"),
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
    (
        "git: {repo: 'https://github.com/zsh-users/antigen.git', dest: /opt/a}",
        OVER,
        "/opt/a/.git/HEAD",
    ),
    # cloudalchemy/ansible-node-exporter, MIT
    ("{fail: {msg: only systemd}, when: ansible_service_mgr != 'systemd'}", OUT, "fails on all"),
    ("{meta: end_host, when: found.stat.exists}", OUT, "`refuse`"),
    # ansible-lockdown/UBUNTU22-CIS, MIT
    (
        "lineinfile: {path: /etc/modprobe.d/CIS.conf, regexp: '^(#)?install cramfs(\\s|$)', "
        "line: install cramfs /bin/true, create: true, mode: 'go-rwx'}",
        OVER,
        "Set the mode of /etc/modprobe.d/CIS.conf to go-rwx",
    ),
    ("modprobe: {name: usb-storage, state: absent}", OVER, 'row.name == "usb_storage"'),
    ("package: {name: bind9, state: absent, purge: yes}", OVER, "config-files"),
    ("{systemd: {name: ssh.socket, state: stopped}}", OUT, "access to a host may depend on ssh"),
    # trailofbits/algo, AGPL-3.0: facts only
    (
        "cron: {name: log rotation, job: /usr/sbin/logrotate, minute: '0', hour: '*/6'}",
        OVER,
        "/var/spool/cron/crontabs/root",
    ),
    ("cron: {name: PATH, env: yes, job: /usr/bin}", OUT, "its argument env is not read"),
    ("modprobe: {name: af_key, persistent: present}", OVER, "/etc/modules-load.d/af_key.conf"),
    ("group: {name: algo, gid: 15000}", OVER, "Give the group algo the number 15000"),
    ("alternatives: {name: iptables, path: /usr/sbin/iptables-legacy}", OVER, "--auto"),
    (
        "{file: {path: /srv/pki, state: directory}, delegate_to: localhost}",
        OUT,
        "on the machine where Ansible runs",
    ),
    # geerlingguy/ansible-role-docker and -jenkins, MIT
    ("package: {name: docker-ce, state: present, allow_downgrade: true}", OVER, "docker-ce"),
    (
        "lineinfile: {path: /etc/x, regexp: '^Environment=\"A ', line: 'Environment=\"A b\"', "
        "insertafter: '^Environment=\"A='}",
        OVER,
        "Add a line to /etc/x after",
    ),
    # StreisandEffect/streisand, GPL-3.0: facts only
    (
        "copy: {src: /var/lib/tor/hostname, dest: /var/www/host.txt, remote_src: yes, owner: a}",
        OVER,
        "--no-preserve=all",
    ),
    ("ufw: {to_port: '53', proto: udp, rule: allow}", OVER, "Have ufw allow 53/udp"),
    # jnv/ansible-role-unattended-upgrades, GPL-2.0: a fact only
    ("service: {name: web, state: started, use: service}", OVER, "Start web"),
    (
        "replace: {path: /etc/default/grub, regexp: 'audit=([0-9]+)', replace: audit=1}",
        OVER,
        "grep - -hoE",
    ),
    # roots/trellis, MIT
    (
        "{apt_repository: {repo: 'deb [signed-by=/etc/a.gpg] https://packages.sury.org/php/ "
        "bookworm main', filename: sury-php}, register: result, until: result is success, "
        "retries: 3}",
        OVER,
        "/etc/apt/sources.list.d/sury-php.list",
    ),
    ("apt_repository: repo='ppa:ondrej/php' update_cache=yes", OUT, "not one line of a source"),
    # fedora-infra/ansible, MIT
    (
        "lineinfile: {path: /etc/default/a, regexp: '^ARGS=', line: ARGS=--b, backrefs: yes}",
        OVER,
        "Replace a line of /etc/default/a",
    ),
    (
        "lineinfile: {path: /etc/default/grub, regexp: '^(A)', line: '\\1b', backrefs: yes}",
        OUT,
        "parts of the one that it replaces",
    ),
    ("{fail: {msg: a socket}, when: found.stat.exists}", OUT, "`refuse`"),
]
LINES = [
    # jmrenouard/rundeck-training, no licence file: facts only
    ("mkdir -p /var/backups/mysql", OVER, "Create the directory /var/backups/mysql"),
    ("docker pull registry/app", BLIND, "docker pull registry/app"),
    ("systemctl is-active nginx | grep -q inactive && reboot", BLIND, "reboot"),
    # datnguyendv/rundeck-automation, no licence file: facts only
    ("sudo apt-get update", OVER, "Read the lists of packages again"),
    ("apt-get update && apt-get -y install app", OVER, "Install the package app"),
    ("apt-get install -y app=1:1.0-1", OVER, "app=1:1.0-1"),
    ("a2enmod ssl && a2ensite my-site", OVER, "Enable the site my-site of Apache"),
    ("ufw allow https", OVER, "ufw allow 443/tcp"),
    ("ufw allow in on eth0 to any port 53 proto udp", OVER, "Have ufw allow in on eth0 to any"),
    ("ufw allow from 192.0.2.7 port 53", BLIND, "from 192.0.2.7 port 53"),
    ("ufw allow smtp", BLIND, "which ports smtp has"),
    ("ufw --force enable", BLIND, "enable"),
    ("setsebool -P httpd_x=1 nis_enabled=off", OVER, "Turn the boolean nis_enabled off, now and"),
    ("setsebool -P httpd_x on", OVER, "Turn the boolean httpd_x on, now and at each boot"),
    ("setsebool -N httpd_x on", BLIND, "setsebool -N httpd_x on"),
    ("apt-mark hold nginx && apt-mark unhold app", OVER, "Release the package app"),
    ("apt-mark auto nginx", BLIND, "apt-mark auto nginx"),
    ("usermod -G wheel ann", BLIND, "usermod -G wheel ann"),
    ("usermod -L ann", BLIND, "usermod -L ann"),
    ("useradd bob && usermod -g ops bob", BLIND, "with a first group of its own"),
    ("chsh -s '/bin/sh -x' ann", BLIND, "is not a plain shell"),
    ("apt-get -y -o APT::X=1 upgrade", BLIND, "upgrade"),
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
    "- set_fact: {version: '2'}\n"
    "- include_vars: '{{ ansible_os_family }}.yml'\n",
    "defaults/main.yml": "base: /srv\nplace: '{{ base }}/www'\nport: '80'\nflag: yes\n"
    "packages: [nginx]\npeople: []\n",
    "vars/Debian.yml": "port: '8080'\n",
}


def write_role(tmp_path: Path, files: Mapping[str, str]) -> Imported:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (job,) = import_ansible(tmp_path / "tasks" / "main.yml", set())
    return job


def show(job: Imported) -> str:
    return " ".join(" ".join(draft.render().split()) for draft in job.drafts)


def test_values_of_a_role_are_used_where_nothing_else_sets_them(tmp_path: Path):
    """And never where a task or the inventory sets them, or YAML 1.1 reads another value."""
    job = write_role(tmp_path, ROLE)
    page = show(job)
    assert "Create the directory /srv/www" in page
    assert "stdin: '8080'" in page, "vars/Debian.yml sets it on Debian"
    assert "row.line.matches" in page, "and hosts of other systems are refused"
    assert "on is True" in page, "Ansible reads yes as True"
    assert "Add the user {people_item}" in page, "a list that is empty by default is filled"
    assert "Create the directory /x/2" in page, "a task sets it"
    assert "does no inventory or play set other values than the defaults of" in page
    assert "place" in next(one.note for one in job.outcomes if one.what == "defaults of the role")


LISTS = {
    "tasks/main.yml": "- user: {name: '{{ item.name }}', append: yes, "
    "shell: '{{ item.shell | d(\"/bin/sh\") }}',"
    " groups: '{{ item[\"groups\"] }}'}\n  loop: '{{ people }}'\n"
    "- file: {path: '/home/{{ item.name }}/x', state: directory}\n"
    "  loop: '{{ people | default([]) }}'\n"
    "- package: {name: '{{ item }}'}\n  with_items: '{{ packages }}'\n"
    "- file: {path: '{{ item.key }}', state: '{{ item.value.state }}'}\n"
    "  with_dict: '{{ places }}'\n"
    "- file: {path: '{{ one.key }}', state: directory}\n"
    "  loop: '{{ places | dict2items }}'\n  loop_control: {loop_var: one}\n"
    "  when: one.value.state == 'directory'\n"
    "- file: {path: '{{ item }}', state: directory}\n  loop: '{{ read.stdout_lines }}'\n"
    "- command: ls\n  register: read\n  changed_when: false\n"
    "- file: {path: '{{ item }}', state: directory}\n  loop: '{{ read }}'\n"
    "- file: {path: '{{ item }}', state: directory}\n  loop: '{{ ours }}'\n",
    "defaults/main.yml": "places: {}\nours: ['/x/{{ ansible_fqdn }}']\n",
}


def test_loop_over_a_list_of_the_inventory_asks_for_one_of_its_items(tmp_path: Path):
    """Each list has pages of its own, so that no request asks for items of two."""
    job = write_role(tmp_path, LISTS)
    people, packages, places = [" ".join(draft.render().split()) for draft in job.drafts]
    assert "Add {people_name} to the group {people_groups}" in people
    assert "description: people shell default: /bin/sh" in people
    assert "people_name: type: text pattern: '[a-z_][a-z0-9_-]{0,31}'" in people
    assert "Create the directory /home/{people_name}/x" in people
    assert "It is for one item of people. Ansible took all: request it for each." in people
    assert "- install - '{packages_item}'" in packages
    assert "one item of packages" in packages
    assert "people" not in packages
    assert "Create the directory {places_key}" in places
    assert "Ansible asked one.value.state == 'directory'" in places
    left_out = [one for one in job.outcomes if one.kind == "left out" and not one.is_setting]
    assert [one.line for one in left_out] == [7, 13, 15, 18, 20]
    settings = [one.what for one in job.outcomes if "request is for one" in one.note]
    assert settings == ["people", "packages", "places"]


def test_values_of_a_request_stand_in_defaults_and_joined_texts(tmp_path: Path):
    """What a step does is not asked of a request: a default is taken, and asked about."""
    tasks = (
        "- user:\n    name: '{{ item.name }}'\n"
        "    home: '{{ item.home | default(\"/srv/\" + item.name) }}'\n"
        "    group: '{{ item.team | d(item.name if own else \"users\") }}'\n"
        "    state: '{{ item.state | default(\"present\") }}'\n"
        "  loop: '{{ people }}'\n"
        "- file: {path: \"{{ '/x/' ~ item.name }}\", state: '{{ item.kind }}'}\n"
        "  loop: '{{ people }}'\n"
        "- file: {path: '/x/{{ low + high }}', state: directory}\n"
        "- lineinfile: {path: /etc/app, regexp: '^{{ key | regex_escape }}=', line: 'a.b=1'}\n"
    )
    files = {"tasks/main.yml": tasks, "defaults/main.yml": "own: yes\nkey: a.b\n"}
    job = write_role(tmp_path, files)
    page = show(job)
    assert "- -d - /srv/{people_name} - '{people_name}'" in page
    assert "- -g - '{people_name}'" in page
    assert "does no inventory or play set people[].home, people[].state, people[].team" in page
    assert "^a\\\\.b=" in page
    assert [one.line for one in job.outcomes if "KIND" in one.note] == [7]


def test_two_values_of_one_name_are_not_one_value_of_the_request(tmp_path: Path):
    tasks = "- user: {name: '{{ item.name }}'}\n  loop: '{{ people }}'\n"
    tasks += "- file: {path: '/x/{{ people_name }}', state: directory}\n"
    job = write_role(tmp_path, {"tasks/main.yml": tasks})
    assert "Add the user {people_name}" in show(job)
    assert "/x/" not in show(job)
    assert any("two values people_name" in one.note for one in job.outcomes)


SYSTEM = {
    "tasks/main.yml": "- include_vars: '{{ item }}'\n"
    "  with_first_found: ['{{ ansible_distribution }}-{{ ansible_distribution_version }}.yml', "
    "'{{ ansible_os_family }}.yml']\n"
    "- set_fact: {daemon: '{{ __daemon }}'}\n  when: daemon is not defined\n"
    "- import_tasks: 'setup-{{ ansible_facts.os_family }}.yml'\n"
    "- include_tasks: redhat.yml\n  when: ansible_facts['os_family'] == 'RedHat'\n"
    "- service: {name: '{{ daemon }}', state: started}\n  when: daemon_enabled\n"
    "- file: {path: /srv/off, state: touch}\n  when: not daemon_enabled\n"
    "- template: {src: conf.j2, dest: /etc/app.conf}\n  notify: restart app\n",
    "tasks/setup-Debian.yml": "- package: {name: [ntpsec]}\n",
    "tasks/redhat.yml": "- file: {path: /srv/redhat, state: touch}\n",
    "vars/Debian-11.yml": "__daemon: old\n",
    "vars/Debian.yml": "__daemon: ntpsec\n",
    "defaults/main.yml": "daemon_enabled: true\nservers: [a, b]\nport: 80\n",
    "templates/conf.j2": "{# a comment #}\n{% for one in servers %}\nserver {{ one | upper }}\n"
    "{% endfor %}\n{% if port is defined and tls | default(false) %}\ntls\n{% endif %}\n",
    "handlers/main.yml": "- name: restart app\n"
    "  service: {name: '{{ daemon }}', state: restarted}\n"
    "- name: other\n  service: {name: x, state: restarted}\n",
}


def test_role_is_imported_as_it_runs_on_a_system_and_hosts_of_others_are_refused(tmp_path: Path):
    job = write_role(tmp_path, SYSTEM)
    page = show(job)
    assert "Install the package ntpsec" in page, "of the file that it includes, with apt"
    assert "/usr/bin/apt-get" in page
    assert "Start ntpsec" in page, "vars/Debian.yml, since Debian-11.yml is for another version"
    assert "server A server B" in page, "the template with its loop, and without what is not set"
    assert "does no inventory or play set tls?" in page
    assert "Restart ntpsec, since what it reads has changed" in page
    assert "/srv/redhat" not in page
    assert "/srv/off" not in page
    notes = {one.what: one.note for one in job.outcomes}
    assert "does not run with the values that the files give to daemon_enabled" in notes["file"]
    assert [one.file for one in job.outcomes if one.what == "package"] == ["setup-Debian.yml"]
    assert "^VERSION_ID=" in page


@pytest.mark.parametrize(
    ("name", "text", "unlike"),
    [
        # A file that may be another one, or is read only sometimes.
        ("vars/Debian-12.7.yml", "__daemon: new\n", "Start ntpsec"),
        ("vars/Debian.yml", "__daemon: [a, b]\n", "Start ntpsec"),
        ("handlers/main.yml", "- name: x\n  set_fact: {daemon: z}\n", "Start ntpsec"),
        ("tasks/more.yml", "- include_vars: '{{ found.stdout }}.yml'\n", "server A server B"),
        ("defaults/main.yml", "daemon_enabled: '{{ x.stdout }}'\n", "server A server B"),
        ("templates/conf.j2", "{% include 'x' %}server A server B", "server A server B"),
        ("templates/conf.j2", "{{ x.stdout | int }}server A server B", "server A server B"),
        ("templates/conf.j2", "{{ lookup('file', '/x') }}server A server B", "server A server B"),
        (
            "templates/conf.j2",
            "#jinja2: trim_blocks: False\n{{ port }}server A server B",
            "server A server B",
        ),
    ],
)
def test_value_that_a_run_may_change_is_not_taken_for_known(
    tmp_path: Path, name: str, text: str, unlike: str
):
    assert unlike in show(write_role(tmp_path, SYSTEM))
    again = tmp_path / "again"
    files = {**SYSTEM, name: text}
    for each, content in files.items():
        (again / each).parent.mkdir(parents=True, exist_ok=True)
        (again / each).write_text(content)
    (job,) = import_ansible(again / "tasks" / "main.yml", set())
    assert unlike not in show(job)


def test_step_after_what_another_changed_is_needed_exactly_then(tmp_path: Path):
    tasks = (
        "- copy: {dest: /etc/app.conf, content: x}\n  register: written\n"
        "- service: {name: app, state: restarted}\n  when: written is changed\n"
        "- file: {path: /srv/x, state: directory}\n  when: written.changed\n"
    )
    job = write_role(tmp_path, {"tasks/main.yml": tasks})
    assert [str(one.kind) for one in job.outcomes if not one.is_setting] == [OVER] * 3
    (draft,) = job.drafts
    whens = {step["title"]: step["when"] for _, _, step in draft.steps}
    assert 'content_etc_app_conf == ""' in whens["Restart app, since what it reads has changed"]
    assert whens["Create the directory /srv/x"].endswith(
        '&& (!file_srv_x.startsWith("directory,"))'
    )
    assert draft.list_questions() == []


def test_values_of_an_inventory_come_before_defaults_and_are_not_asked(tmp_path: Path):
    files = {
        "roles/web/tasks/main.yml": "- file: {path: '{{ place }}', state: directory}\n"
        "- group: {name: '{{ item.name }}', system: '{{ item.system | default(omit) }}'}\n"
        "  loop: '{{ teams }}'\n",
        "roles/web/defaults/main.yml": "place: /srv/default\nteams: []\n",
        "site.yml": "- hosts: all\n  become: true\n  roles: [{role: web, tags: x}]\n",
        "own.yml": "teams: [{name: ops}, {name: db, system: yes}]\nplace: /srv/own\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (plain,) = import_ansible(tmp_path / "site.yml", set())
    assert "Create the directory /srv/default" in show(plain)
    assert "TODO: does no inventory or play set other values" in show(plain)
    target = read_target("debian12", [tmp_path / "own.yml"])
    (job,) = import_ansible(tmp_path / "site.yml", set(), target=target)
    page = show(job)
    assert "Create the directory /srv/own" in page
    assert "- /usr/sbin/groupadd - ops" in page
    assert "- /usr/sbin/groupadd - -r - db" in page
    assert [draft.list_questions() for draft in job.drafts] == [[]]


@pytest.mark.parametrize(("name", "words"), [("main", "web"), ("maintain", "maintain")])
def test_tasks_of_a_role_have_its_name(tmp_path: Path, name: str, words: str):
    file = tmp_path / "web" / "tasks" / f"{name}.yml"
    file.parent.mkdir(parents=True)
    file.write_text("- file: {path: /srv/a, state: directory}\n")
    [job] = import_ansible(file, set())
    assert job.name == words


def test_file_that_includes_itself_is_read_once(tmp_path: Path):
    job = write_role(tmp_path, {"tasks/main.yml": "- include_tasks: main.yml\n" * 20})
    assert len(job.outcomes) < 50


def test_import_of_too_many_files_ends_with_a_sentence(tmp_path: Path):
    files = {
        f"tasks/{name}.yml": f"- include_tasks: {inner}.yml\n" * 20
        for name, inner in zip(("main", *"abc"), "abcd", strict=True)
    }
    with pytest.raises(SourceError, match=r"includes more than 300 files: import them one by one"):
        write_role(tmp_path, {**files, "tasks/d.yml": "- file: {path: /srv/a, state: touch}\n"})


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!' | regex_replace('(a+)+$', '')", "take too long"),
        ("'a' | regex_replace('(', '')", "its pattern is none"),
        ("'a' | indent(99999999999)", "more than 100 columns"),
    ],
)
def test_expression_that_takes_too_much_is_left_out(tmp_path: Path, expression: str, reason: str):
    task = f'- copy: {{dest: /a/b, content: "{{{{ {expression} }}}}"}}\n'
    job = write_role(tmp_path, {"tasks/main.yml": task})
    assert any(reason in one.note for one in job.outcomes)


@pytest.mark.parametrize("secret", ["hunter2", "{{ vault_ann | password_hash('sha512') }}"])
def test_password_of_a_user_is_in_no_page_and_is_asked_about(tmp_path: Path, secret: str):
    file = tmp_path / "tasks.yml"
    file.write_text(
        f'- user: {{name: ann, shell: /bin/sh, password: "{secret}", update_password: always}}\n'
    )
    (job,) = import_ansible(file, set())
    (outcome,) = [one for one in job.outcomes if not one.is_setting]
    assert str(outcome.kind) == OVER
    assert "the draft asks who sets it" in outcome.note
    (draft,) = job.drafts
    page = draft.render()
    assert "TODO: Ansible set a password of ann. Who does, and how?" in page
    assert "Set the shell of ann to /bin/sh" in page
    assert not {"hunter2", "vault_ann", "asked"} & set(re.findall(r"\w+", page))
    assert draft.list_questions()


def test_number_of_the_kernel_is_kept_in_a_file_that_is_made_if_there_is_none(tmp_path: Path):
    file = tmp_path / "tasks.yml"
    file.write_text("- sysctl: {name: vm.swappiness, value: '10'}\n")
    (job,) = import_ansible(file, set())
    titles = [step["title"] for draft in job.drafts for _, _, step in draft.steps]
    assert titles == [
        "Set vm.swappiness to 10, until the next boot",
        "Create the file /etc/sysctl.conf",
        "Replace a line of /etc/sysctl.conf by: vm.swappiness=10",
        "Add a first line to /etc/sysctl.conf: vm.swappiness=10",
        "Add a line to /etc/sysctl.conf: vm.swappiness=10",
    ]
