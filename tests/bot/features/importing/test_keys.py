"""Keys that change how a task runs: followed, said, or asked about."""

from pathlib import Path

import pytest

from tests.bot.features.importing.test_public_steps import show, write_role

TYPED, BLIND, OUT = "carried over", "blind", "left out"
FILE, APT = "file: {path: /srv/a, state: touch}", "apt: {name: x}"
ON = "register: r"
WENT_ON = "Ansible went on or tried again if it failed; Keyturn stops there"


@pytest.mark.parametrize(
    ("task", "became", "said"),
    [
        (f"{APT}, {ON}, until: r is succeeded, retries: 3, delay: 5", TYPED, WENT_ON),
        (f"{APT}, {ON}, until: r | success", TYPED, WENT_ON),
        (f"{APT}, {ON}, until: r.rc == 0", TYPED, WENT_ON),
        (f"{APT}, {ON}, until: r.failed == false", TYPED, WENT_ON),
        (f"{APT}, {ON}, until: other.rc == 0", OUT, "it has `until`"),
        (f"{APT}, {ON}, until: r.stdout == 'ok'", OUT, "it has `until`"),
        (f"{APT}, {ON}, until: r is succeeded or other", OUT, "it has `until`"),
        (f"{APT}, {ON}, failed_when: r.rc != 0", TYPED, ""),
        (f"{APT}, {ON}, failed_when: r is failure", TYPED, ""),
        (f"{APT}, {ON}, failed_when: [r.rc != 0, \"'x' in r.stderr\"]", TYPED, WENT_ON),
        (f"{APT}, {ON}, failed_when: \"r.rc > 1 and 'x' in r.stderr\"", TYPED, WENT_ON),
        (f'{APT}, {ON}, failed_when: "r.rc not in [0, 1]"', TYPED, WENT_ON),
        (f'{APT}, {ON}, failed_when: "r.rc not in [1, 2]"', OUT, "it has `failed_when`"),
        (f"{APT}, {ON}, failed_when: \"r.rc != 0 or 'x' in r.stderr\"", OUT, "`failed_when`"),
        (f"{APT}, {ON}, failed_when: other.rc != 0", OUT, "it has `failed_when`"),
        (f"{APT}, failed_when: \"'x' in r.stderr\"", OUT, "it has `failed_when`"),
        (f"{APT}, changed_when: false, no_log: yes, diff: no, throttle: 1", TYPED, ""),
        (f"{APT}, async: 60, poll: 5", TYPED, ""),
        (f"{APT}, async: 60", TYPED, ""),
        (f"{APT}, async: 60, poll: 0", OUT, "it has `async`"),
        (f"{APT}, async: 60, poll: '{{{{ p }}}}'", OUT, "it has `async`"),
        (f"{APT}, check_mode: yes", OUT, "it changes nothing on the host"),
        (f"{APT}, check_mode: no", TYPED, ""),
        (f"{APT}, environment: {{}}", TYPED, ""),
        (f"{APT}, environment: '{{{{ env | default({{}}) }}}}'", TYPED, ""),
        (f"{APT}, environment: {{DEBIAN_FRONTEND: noninteractive, LC_ALL: C}}", TYPED, ""),
        (f"{APT}, environment: {{http_proxy: x}}", OUT, "it has `environment`"),
        (f"{FILE}, environment: {{http_proxy: '{{{{ p }}}}', LC_ALL: C}}", TYPED, ""),
        (f"{FILE}, environment: {{PATH: /x}}", OUT, "it has `environment`"),
        (f"{FILE}, environment: '{{{{ p }}}}'", OUT, "it has `environment`"),
        ("command: make, environment: {A: 'b c', D: '1'}", BLIND, ""),
        ("command: make, environment: {A: '{{ b }}'}", BLIND, "Ansible had `environment`"),
        ("command: mkdir /srv/x, environment: {http_proxy: x}", TYPED, ""),
        ("command: mkdir /srv/x, environment: {A: x}", BLIND, ""),
        ("command: apt-get install x, environment: {http_proxy: x}", BLIND, ""),
    ],
)
def test_key_is_followed_said_or_asked_about(tmp_path: Path, task: str, became: str, said: str):
    job = write_role(tmp_path, {"tasks/main.yml": f"- {{{task}}}\n"})
    (outcome,) = (one for one in job.outcomes if not one.is_setting)
    assert (str(outcome.kind), said in outcome.note) == (became, True), outcome.note
    assert bool(said) == bool(outcome.note)


def test_lines_get_the_environment_of_play_block_and_task(tmp_path: Path):
    tasks = (
        '- environment: {A: outer, B: "it\'s"}\n  block:\n'
        "    - shell: make > log\n      environment: {A: inner, C: 3}\n"
    )
    (draft,) = write_role(tmp_path, {"tasks/main.yml": tasks}).drafts
    (script,) = [step["do"]["script"] for _, _, step in draft.steps]
    assert script == "export A=inner\nexport B='it'\"'\"'s'\nexport C=3\nmake > log"


def test_what_ran_once_asks_whether_it_is_for_this_host(tmp_path: Path):
    tasks = f"- {{{FILE}, run_once: yes}}\n- {{command: make, run_once: yes}}\n"
    page = show(write_role(tmp_path, {"tasks/main.yml": tasks}))
    assert page.count("whether this host is the one of all that it ran on, with run_once") == 2
