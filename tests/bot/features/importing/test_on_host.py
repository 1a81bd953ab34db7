"""Each kind of change, of tasks and of lines for a shell, on a host with sshd and systemd.

The host has namespaces, an /etc and a /home of its own, so that accounts, its name and its mounts
are not those of this machine.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bot.features.importing.ansible.importer import import_ansible, read_target
from bot.features.importing.pages import Imported
from bot.features.importing.rundeck import import_rundeck
from connectors.command import Shell
from connectors.errors import CommandError
from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.ssh_pool import SshPool
from runbooks import Change, NoUndo
from runbooks._declared import check_page, load_page
from tests.acceptance.direct_execution import execute_plan, undo_plan
from tests.playground.sshd import Sshd
from tests.playground.systemd import Systemd, explain_missing_support

_MISSING = explain_missing_support()
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(bool(_MISSING), reason=f"systemd cannot run here: {_MISSING}"),
]

_SLEEPS = "[Service]\nExecStart=/bin/sleep 1000\n[Install]\nWantedBy=ours.target\n"
_UNITS = {
    "web.service": f"[Unit]\nDescription=Web\n{_SLEEPS}",
    "idle.service": f"[Unit]\nDescription=Idle\n{_SLEEPS}",
    "nightly.service": "[Service]\nExecStart=/bin/true\n",
    "nightly.timer": "[Timer]\nOnCalendar=03:00\n[Install]\nWantedBy=ours.target\n",
}
_PREPARE = """
cp -a /etc /run/etc && mount --bind /run/etc /etc && mount --bind "$1" /etc/systemd/system
mkdir -p /run/home /run/sshd /run/data && mount --bind /run/home /home
mkdir -p /var/lib/keyturn-probation && mount -t tmpfs tmpfs /var/lib/keyturn-probation
mount -t tmpfs -o rw,nosuid tmpfs /run/data
groupadd staff1 && groupadd ops && useradd -m -s /bin/sh -c Ann -g staff1 ann
cp -a /var/lib/dpkg/alternatives /run/alternatives
mount --bind /run/alternatives /var/lib/dpkg/alternatives
update-alternatives --install /etc/app-link app /bin/true 10 --slave /etc/app-doc app.1 /etc/fstab
update-alternatives --install /etc/app-link app /bin/false 5
mkdir -p /etc/modules-load.d
printf '# what is mounted\n/dev/sdx1\t/old  ext4 defaults 0 2\n' > /etc/fstab
hostname web1 && echo web1 > /etc/hostname
ln -sfn /usr/share/zoneinfo/Etc/UTC /etc/localtime && echo Etc/UTC > /etc/timezone
mkdir -p /etc/app && echo 'first = 1' > /etc/app/conf && : > /etc/app/empty
"""
# What a kind may change: accounts, names, links, modes and contents, mounts and units.
_LOOK = """
getent passwd; getent group; hostname; cat /etc/hostname /etc/timezone; readlink /etc/localtime
find /etc/apache2/*-enabled -printf '%p %y %l\\n' | sort
find /etc/app /etc/tmpfiles.d -printf '%p %m %u %g %y %l\\n' | sort
find /etc/app /etc/sudoers.d /etc/pam.d /etc/ssh/sshd_config -type f -exec sha256sum {} + | sort
find /etc/sudoers.d -type f -printf '%p %m\\n' | sort
cat /etc/fstab; findmnt -n -o FSTYPE,OPTIONS --mountpoint /run/extra; ls -d /run/extra
find /etc/modules-load.d -type f -exec sha256sum {} + | sort
readlink /etc/alternatives/app; head -n 1 /var/lib/dpkg/alternatives/app
findmnt -n -o OPTIONS /run/data
systemctl is-active web idle nightly.timer; systemctl is-enabled web idle nightly.timer
"""


class _Systemd(Systemd):
    """One that finds what is enabled and masked in a directory of its own, as in /etc."""

    def __init__(self) -> None:
        super().__init__(_UNITS)
        self.own = self.directory / "own"
        self.own.mkdir()

    def _configure(self) -> list[str]:
        paths = f"/etc/systemd/system:{self.units}"
        return [paths if word == str(self.units) else word for word in super()._configure()]


class _Host(Sshd):
    """An OpenSSH server in the namespaces of a systemd."""

    def __init__(self, systemd: Systemd) -> None:
        super().__init__()
        self._systemd = systemd

    def _configure(self) -> list[str]:
        children = Path(f"/proc/{self._systemd.pid}/task/{self._systemd.pid}/children")
        first = children.read_text().split()[0]
        enter = ["nsenter", "--target", first, "--pid", "--mount", "--uts", "--cgroup", "--"]
        return [*enter, *super()._configure()]


class _Machine:
    def __init__(self, host: _Host, systemd: Systemd, policy: Path) -> None:
        entry = host.inventory_entry(area="infra")
        self.fleet = Fleet(Inventory.model_validate({"hosts": {"web1": entry}}), SshPool(policy))
        self.systemd = systemd

    def look(self) -> str:
        return self.systemd.run_inside(
            "nsenter", "--target", "1", "--uts", "sh", "-c", _LOOK
        ).stdout


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Machine]:
    policy = tmp_path_factory.mktemp("policy")
    with _Systemd() as systemd:
        enter = ("nsenter", "--target", "1", "--uts", "sh", "-ec", _PREPARE, "sh")
        prepared = systemd.run_inside(*enter, str(systemd.own))
        assert prepared.returncode == 0, prepared.stderr
        systemd.systemctl("daemon-reload")
        systemd.systemctl("start", "web")
        with _Host(systemd) as host:
            machine = _Machine(host, systemd, policy)
            yield machine
            machine.fleet.close()


def load(job: Imported, **values: str) -> Change[Any]:
    """Return the request of the one page of a job, which only asks for an example."""
    (draft,) = job.drafts
    kinds = {str(one.kind) for one in job.outcomes if not one.is_setting}
    assert kinds == {"carried over"}, job.outcomes
    example = " ".join(["web1", *values.values()])
    text = draft.render().replace(" ".join(["web1", *["TODO"] * len(values)]), example)
    runbook = load_page(Path("page.yaml"), text.encode())
    check_page(runbook)
    assert issubclass(runbook, Change)
    return runbook.model_validate({"host": "web1", **values})


def import_task(tmp_path: Path, task: str) -> Change[Any]:
    file = tmp_path / "tasks.yml"
    file.write_text(f"- {task}\n")
    return load(import_ansible(file, set())[0])


def import_line(tmp_path: Path, line: str) -> Change[Any]:
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps([{"name": "job", "sequence": {"commands": [{"exec": line}]}}]))
    return load(import_rundeck(file, set())[0])


TASKS = [
    "service: {name: idle, state: started}",
    "systemd: {name: web, state: stopped}",
    "systemd_service: {name: web, enabled: yes, scope: system}",
    "systemd: {name: idle, masked: yes}",
    "systemd: {name: web, masked: yes, enabled: no, state: stopped}",
    "systemd: {name: nightly.timer, state: started, enabled: yes}",
    "systemd: {name: nightly.timer, masked: yes}",
    "user: {name: ann, shell: /bin/bash}",
    "user: {name: ann, uid: 4711, home: /home/other}",
    "user: {name: ann, group: ops}",
    "user: {name: ann, groups: [ops], append: yes}",
    "user: {name: bob, shell: /bin/sh, groups: ops, append: yes}",
    "user: {name: bob, group: ops, system: yes, create_home: no}",
    "user: {name: bob}\n- user: {name: bob, shell: /bin/bash, groups: ops, append: yes}",
    "group: {name: team}",
    "group: {name: team, gid: 4712}",
    "group: {name: ops, gid: 4712}",
    "alternatives: {name: app, path: /bin/false}",
    "hostname: {name: web1.example.com}",
    "timezone: {name: Europe/Berlin}",
    "apache2_module: {name: rewrite, state: present}",
    "community.general.apache2_module: {name: status, state: absent}",
    "lineinfile: {path: /etc/app/new, line: a = b, create: yes}",
    "lineinfile: {path: /etc/app/empty, line: a = b, create: yes, mode: '0600'}",
    "lineinfile: {path: /etc/app/conf, line: a = b, create: yes, owner: ann}",
    "file: {path: /etc/app/conf, mode: 'u=rw,g=r,o='}",
    "file: {path: /etc/app/dir, state: directory, owner: ann, group: ops}",
    "copy: {dest: /etc/app/new, content: one}",
    "mount: {path: /run/extra, src: tmpfs, fstype: tmpfs, opts: 'size=1m,nosuid', state: mounted}",
    "mount: {path: /run/more, src: tmpfs, fstype: tmpfs, opts: nofail, state: present}",
    "mount: {name: none, src: /swapfile, fstype: swap, opts: sw, passno: 0, state: present}",
    "file: {path: /etc/app/link, state: link, src: /etc/app/conf}",
    "lineinfile: {path: /etc/app/conf, line: a = b, validate: grep first %s}",
    "copy: {dest: /etc/sudoers.d/ann, content: 'ann ALL=(root) /bin/true', mode: '0440'}",
    "lineinfile: {path: /etc/sudoers.d/ann, line: 'ann ALL=(root) /bin/true', create: yes, "
    "mode: '0440'}",
    "lineinfile: {path: /etc/ssh/sshd_config, line: MaxStartups 20}",
    "lineinfile: {path: /etc/pam.d/common-session, line: session optional pam_umask.so}",
    "authorized_key: {user: ann, path: /etc/app/conf, manage_dir: no, "
    "key: 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPx ann@laptop'}",
]  # fmt: skip
ROLES = {
    # What a task of the role asks, and what its loops and templates give.
    "files of a loop": (
        "- file: {path: '{{ item.path }}', state: directory, "
        "mode: '{{ item.mode | d(\"0750\") }}', "
        "owner: '{{ item.owner | default(omit) }}'}\n  loop: '{{ places }}'\n",
        "places: [{path: /etc/app/a}, {path: /etc/app/b, mode: '0700', owner: ann}]\n",
    ),
    "a template with logic": (
        "- template: {src: app.j2, dest: /etc/app/made, mode: '0600'}\n",
        "servers: {a: 1, b: 2}\n",
    ),
    "what follows a change": (
        "- copy: {dest: /etc/app/new, content: one}\n  register: made\n"
        "- file: {path: /etc/app/dir, state: directory}\n  when: made is changed\n",
        "x: 1\n",
    ),
}  # fmt: skip
LINES = [
    "systemctl stop web",
    "service idle start",
    "systemctl enable --now idle",
    "systemctl mask idle",
    "systemctl enable --now nightly.timer",
    "sudo usermod -aG ops ann",
    "usermod -a -G ops ann",
    "useradd -m -s /bin/bash bob",
    "useradd bob && usermod -aG ops bob && chsh -s /bin/bash bob",
    "usermod -s /bin/bash -u 4711 -g ops ann",
    "sudo chsh -s /bin/bash ann",
    "hostnamectl set-hostname db1",
    "timedatectl set-timezone Asia/Tokyo",
    "mount -o remount,noexec,ro /run/data",
    "sudo mount -o remount,suid /run/data",
    "a2enmod -q rewrite",
    "a2enmod rewrite && a2enmod headers",
    "a2ensite default-ssl.conf",
    "sudo a2dissite 000-default",
    "a2dismod -f autoindex",
    "a2disconf charset security",
    "chmod 600 /etc/app/conf && chown ann:ops /etc/app/conf",
    "ln -s /etc/app/conf /etc/app/link",
    "mkdir -p /etc/app/dir",
    "touch /etc/app/new",
    "cp /etc/app/conf /etc/app/new && mv /etc/app/empty /etc/app/moved",
    "install -m 640 -o ann -g ops /etc/app/conf /etc/app/new",
    "echo 'a = b' | sudo tee -a /etc/app/conf",
    "fallocate -l 64K /etc/app/zeros",
    "dd if=/dev/zero of=/etc/app/zeros bs=1K count=4 status=none",
]  # fmt: skip


def check_effect(machine: _Machine, change: Change[Any]) -> None:
    before = machine.look()
    plan = execute_plan(machine.fleet, change)
    assert machine.look() != before
    undo_plan(machine.fleet, change, plan)
    assert machine.look() == before


@pytest.mark.parametrize("task", TASKS)
def test_task_is_in_effect_after_its_steps_and_gone_after_their_undo(
    machine: _Machine, tmp_path: Path, task: str
):
    check_effect(machine, import_task(tmp_path, task))


@pytest.mark.parametrize("name", ROLES)
def test_role_is_in_effect_after_its_steps_and_gone_after_their_undo(
    machine: _Machine, tmp_path: Path, name: str
):
    tasks, values = ROLES[name]
    template = "{% for key in servers | sort %}\n{{ key }} = {{ servers[key] }}\n{% endfor %}\n"
    for file, text in {"tasks/main.yml": tasks, "templates/app.j2": template}.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    (tmp_path / "own.yml").write_text(values)
    target = read_target("debian12", [tmp_path / "own.yml"])
    check_effect(
        machine, load(import_ansible(tmp_path / "tasks" / "main.yml", set(), "", target)[0])
    )


def test_item_of_a_list_is_in_effect_after_its_steps_and_gone_after_their_undo(
    machine: _Machine, tmp_path: Path
):
    file = tmp_path / "tasks.yml"
    file.write_text(
        "- user: {name: '{{ item.name }}', shell: '{{ item.shell }}', "
        "groups: '{{ item.groups }}', append: yes}\n  loop: '{{ people }}'\n"
    )
    (job,) = import_ansible(file, set())
    values = {"people_name": "bob", "people_groups": "ops", "people_shell": "/bin/bash"}
    check_effect(machine, load(job, **values))
    values |= {"people_name": "ann"}
    check_effect(machine, load(job, **values))


@pytest.mark.parametrize("line", LINES)
def test_line_is_in_effect_after_its_steps_and_gone_after_their_undo(
    machine: _Machine, tmp_path: Path, line: str
):
    check_effect(machine, import_line(tmp_path, line))


@pytest.mark.parametrize(
    ("importer", "text"),
    [
        (import_task, "user: {name: ann, shell: /bin/sh, comment: Ann, group: staff1}"),
        (import_task, "hostname: {name: web1}"),
        (import_task, "lineinfile: {path: /etc/app/none, line: a, state: absent}"),
        (import_task, "timezone: {name: Etc/UTC}"),
        (import_task, "lineinfile: {path: /etc/app/conf, line: first = 1, create: yes}"),
        (
            import_task,
            "mount: {path: /old, src: /dev/sdx1, fstype: ext4, passno: 2, state: present}",
        ),
        (import_task, "mount: {path: /run/extra, state: unmounted}"),
        (import_line, "mount -o remount,exec,rw,nosuid /run/data"),
        (import_line, "systemctl start web && systemctl unmask web"),
    ],
)
def test_nothing_is_planned_for_what_is_so_already(
    machine: _Machine, tmp_path: Path, importer: Callable[[Path, str], Change[Any]], text: str
):
    change = importer(tmp_path, text)
    assert change.plan(change.read(machine.fleet.run_query)).steps == ()


TREES = [
    (
        import_task,
        "file: {path: /etc/app, state: directory, recurse: yes, owner: ann, group: ops}",
    ),
    (import_task, "file: {path: /etc/app, state: directory, recurse: yes, mode: 'g+w,o='}"),
    (
        import_task,
        "file: {path: /etc/app, state: directory, recurse: yes, owner: ann, mode: '6750'}",
    ),
    (import_line, "chown -R ann:ops /etc/app"),
    (import_line, "chown -Rv 1234 /etc/app && chmod -R u=rwX,go=rX /etc/app"),
]


@pytest.mark.parametrize(("importer", "text"), TREES)
def test_all_in_a_directory_is_changed_once(
    machine: _Machine, tmp_path: Path, importer: Callable[[Path, str], Change[Any]], text: str
):
    keep = "cp -a /etc/app /etc/app-kept; ln -s conf /etc/app/link; chmod 4711 /etc/app/conf"
    machine.systemd.run_inside("sh", "-ec", keep)
    try:
        change = importer(tmp_path, text)
        plan = execute_plan(machine.fleet, change)
        assert plan.steps
        assert all(isinstance(step.undo, NoUndo) for step in plan.steps)
        assert change.plan(change.read(machine.fleet.run_query)).steps == ()
        other = "! -user ann" if "ann" in text else "! -uid 1234"
        if "own" in text:
            found = machine.systemd.run_inside("sh", "-ec", f"find /etc/app {other}")
            assert (found.returncode, found.stdout) == (0, "")
    finally:
        machine.systemd.run_inside("sh", "-ec", "rm -rf /etc/app; mv /etc/app-kept /etc/app")


def test_mount_is_mounted_as_its_line_says_when_that_is_another_one(
    machine: _Machine, tmp_path: Path
):
    task = "mount: {path: /run/extra, src: tmpfs, fstype: tmpfs, opts: 'OPTIONS', state: mounted}"
    first = import_task(tmp_path, task.replace("OPTIONS", "size=1m,noexec"))
    plan = execute_plan(machine.fleet, first)
    options = machine.systemd.run_inside("findmnt", "-n", "-o", "OPTIONS", "/run/extra").stdout
    assert "noexec" in options
    other = import_task(tmp_path, task.replace("OPTIONS", "size=1m,nodev"))
    steps = execute_plan(machine.fleet, other).steps
    assert [step.title.split()[0] for step in steps] == ["Replace", "Remount"]
    options = machine.systemd.run_inside("findmnt", "-n", "-o", "OPTIONS", "/run/extra").stdout
    assert "noexec" not in options
    assert "nodev" in options
    execute_plan(machine.fleet, first)
    undo_plan(machine.fleet, first, plan)


def test_comment_of_a_user_is_set_and_the_old_one_is_told(machine: _Machine, tmp_path: Path):
    change = import_task(tmp_path, "user: {name: ann, comment: Ann B}")
    (step,) = execute_plan(machine.fleet, change).steps
    assert isinstance(step.undo, NoUndo)
    assert "put it back by hand: Ann" in step.undo.reason


def test_systemd_reads_its_unit_files_again_where_one_changed(machine: _Machine, tmp_path: Path):
    change = import_task(tmp_path, "systemd: {name: web, daemon_reload: yes}")
    assert not change.plan(change.read(machine.fleet.run_query)).steps
    machine.systemd.write("web.service", _UNITS["web.service"] + "# changed\n")
    plan = execute_plan(machine.fleet, change)
    assert [isinstance(step.undo, NoUndo) for step in plan.steps] == [True]


@pytest.mark.parametrize(
    "task",
    [
        "lineinfile: {path: /etc/ssh/sshd_config, line: PermitRootLogins no}",
        "lineinfile: {path: /etc/ssh/sshd_config, regexp: '^#?Port ', line: Port none}",
        "copy: {dest: /etc/sudoers.d/ann, content: 'ann ALL=(root /bin/true'}",
        "blockinfile: {path: /etc/sudoers, block: 'ann ALL=(root /bin/true'}",
    ],
)
def test_file_with_an_error_that_would_lock_people_out_is_never_there(
    machine: _Machine, tmp_path: Path, task: str
):
    before = machine.look()
    change = import_task(tmp_path, task)
    (*_, step) = change.plan(change.read(machine.fleet.run_query)).steps
    with pytest.raises(CommandError):
        machine.fleet.run_command("web1", machine.fleet.resolve_command("web1", step.do))
    assert machine.look() == before


def test_host_restores_files_on_which_logins_depend_and_their_service_reads_them(
    machine: _Machine, tmp_path: Path
):
    change = import_task(
        tmp_path,
        "lineinfile: {path: /etc/ssh/sshd_config, line: MaxStartups 20, mode: '0640'}",
    )
    probation = change.get_probation()
    assert probation is not None
    assert probation.name == "access"
    saves, restores = (
        Shell(("sh", "-c", f'cd /run/saved && sh -c "$1" keyturn {phase}', "sh", code))
        for phase in ("save", "restore")
        for code in [str(probation.restore).replace("'ssh sshd'", "'no web'")]
    )
    before = machine.look()
    enter = ("nsenter", "--target", "1", "--mount", "--", "stat", "-c", "%a")
    mode = machine.systemd.run_inside(*enter, "/etc/ssh/sshd_config").stdout
    machine.fleet.run_command("web1", Shell(("mkdir", "/run/saved")))
    machine.fleet.run_command("web1", saves)
    execute_plan(machine.fleet, change)
    assert machine.look() != before
    started = machine.systemd.run_inside("systemctl", "show", "-p", "MainPID", "web").stdout
    machine.fleet.run_command("web1", restores)
    assert machine.look() == before
    assert machine.systemd.run_inside(*enter, "/etc/ssh/sshd_config").stdout == mode
    assert (
        machine.systemd.run_inside("systemctl", "show", "-p", "MainPID", "web").stdout != started
    )
