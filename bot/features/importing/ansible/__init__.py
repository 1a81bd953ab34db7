"""Playbooks and roles of Ansible, which AWX and Semaphore run too.

`importer.py` goes through the plays of `playbooks.py`, their roles and files. `tasks.py` fills the
arguments of a task for each item of `loops.py`; `steps.py`, `keys.py`, `conditions.py` and
`modules.py` say what it means. `variables.py` and `templates.py` find the values that its files
decide, for one of the `systems.py`.
"""
