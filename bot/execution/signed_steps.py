"""Steps of enrolled hosts: sent with the plan and its signatures, which the host checks itself."""

from bot.db import runs
from bot.execution.intent import StepIntent
from bot.queries.signatures import list_signatures
from bot.workflow.context import WorkflowContext
from connectors.command import Command, Shell
from connectors.run_signed import sign_step


def add_signatures(context: WorkflowContext, intent: StepIntent, command: Command) -> Command:
    """Return the command as its host wants it: an enrolled one with plan and signatures.

    A part of a request for many hosts was signed with the whole.
    """
    host = context.policies.get_policy().inventory[intent.step.host]
    run = intent.run
    if not host.signed or not isinstance(command, Shell) or run.plan is None:
        return command
    with context.database.reading() as tx:
        signed = runs.get_run(tx, run.parent) if run.parent is not None else run
        signatures = list_signatures(tx, signed)
    section, number = run.plan.find_section(intent.step_number)
    document = signed.plan.document if signed.plan else ""
    return sign_step(command, number, document, section.text, signatures)
