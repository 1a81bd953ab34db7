"""The second vantage: another host that must reach a host before a change on probation is kept."""

from bot.workflow.context import WorkflowContext
from connectors.command import Command
from connectors.errors import HostError, UnreachableError
from connectors.probation import find_kept_change, query_host_keys


def check_vantage(context: WorkflowContext, name: str, command: Command) -> str:
    """Return a line for the output of a step that keeps a change; "" for any other step.

    Raises UnreachableError if the vantage of the host does not reach it.
    """
    inventory = context.policies.get_policy().inventory
    host = inventory[name]
    if host.vantage is None or find_kept_change(command) is None:
        return ""
    try:
        keys = context.fleet.run_query(host.vantage, query_host_keys(host.address, host.port))
    except HostError as error:
        raise UnreachableError(f"the vantage {host.vantage} cannot be used: {error}") from error
    # The fingerprint of a CA is not that of the key which it has signed.
    if not keys or (host.host_ca is None and host.fingerprint not in keys):
        found = "with another key" if keys else "not"
        raise UnreachableError(
            f"{host.vantage} reaches {name} {found} at {host.address} port {host.port}: the "
            "change was not kept"
        )
    return f"{host.vantage} reaches {name}, which shows its key there\n"
