"""Make drafts of declared runbooks from the job files of other tools.

`sources.py` reads a file as data with the line of each value, `rundeck.py`, `ansible.py` and
`semaphore.py` understand what it says, `shell_lines.py`, `changes.py`, `packages.py`,
`accounts.py` and others turn a step into a typed one, and `drafts.py` writes the pages. Of
Ansible, `ansible.py` goes through the plays of `ansible_playbooks.py`, their roles and files,
`ansible_tasks.py` fills the arguments of a task for each item of `ansible_loops.py`, and
`ansible_steps.py`, `ansible_keys.py`, `ansible_conditions.py` and `ansible_modules.py` say what
it means. `variables.py` and `templates.py` find the values that its files decide, for one of the
`systems.py`.
"""

from bot.cli.command_table import CommandEntry
from bot.feature import Feature

FEATURE = Feature(
    "importing",
    commands=[
        CommandEntry(
            "import",
            "bot.features.importing.commands:import_commands",
            "Make drafts of runbooks from jobs of Rundeck, Ansible, AWX and Semaphore.",
            section="Runbooks",
        )
    ],
)
