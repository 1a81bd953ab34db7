"""Every command of the core, by section of the help: each is imported when it is used."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class CommandEntry:
    """A command that can be listed without importing it."""

    name: str
    target: str
    """Its module and its name there: `bot.cli.runs:list_runs`."""
    summary: str
    """The first sentence of its help."""
    section: str = ""
    """Of a feature: the section of `keyturn --help` that lists it, of the core or of its own."""
    group: str = ""
    """Of a feature: the group of the core that it belongs to, instead of a section."""


SECTIONS: Mapping[str, Sequence[CommandEntry]] = {
    "Requests": (
        CommandEntry("request", "bot.cli.runs:request_run",
            "Request a run of RUNBOOK on HOST, typed as in chat."),
        CommandEntry("plan", "bot.cli.runs:plan_run",
            "Show what RUNBOOK would change on HOST and who would approve it; run nothing."),
        CommandEntry("submit", "bot.cli.runs:submit_plan",
            "Request what plan NUMBER shows; DIGEST names the plan."),
        CommandEntry("replan", "bot.cli.runs:replan_run",
            "Plan request NUMBER again, whose plan is not current any more."),
        CommandEntry("again", "bot.cli.runs:request_again",
            "Request ended run NUMBER again, as a new run."),
        CommandEntry("undo", "bot.cli.runs:request_undo",
            "Request the undo of run NUMBER, or of what a person, token or schedule did, as a "
            "new run."),
        CommandEntry("withdraw", "bot.cli.decisions:withdraw_run",
            "Withdraw your own request, before its first step is sent."),
    ),
    "Decisions": (
        CommandEntry("pending", "bot.cli.history:list_pending_runs",
            "List what needs your action: approvals, questions, counter-proposals, plans and "
            "reviews."),
        CommandEntry("approve", "bot.cli.decisions:approve_run",
            "Approve the plan DIGEST of run NUMBER."),
        CommandEntry("sign", "bot.cli.signing:sign_plan",
            "Show the plan of run NUMBER, sign it with your SSH key, and approve it."),
        CommandEntry("deny", "bot.cli.decisions:deny_run", "Deny run NUMBER."),
        CommandEntry("hold", "bot.cli.decisions:hold_run",
            "Hold approved run NUMBER before it starts."),
        CommandEntry("counter", "bot.cli.decisions:propose_values",
            "Propose other values for run NUMBER, which its requester accepts or withdraws."),
        CommandEntry("accept", "bot.cli.decisions:accept_proposal",
            "Accept the counter-proposal NUMBER for your request, which then needs approval."),
        CommandEntry("question", "bot.cli.decisions:ask_question",
            "Ask the requester of pending run NUMBER a question."),
        CommandEntry("answer", "bot.cli.decisions:answer_question",
            "Answer the open questions about your request NUMBER."),
        CommandEntry("reassign", "bot.cli.decisions:reassign_run",
            "Ask PERSON, who can approve pending run NUMBER too, to decide it."),
    ),
    "Runs": (
        CommandEntry("runs", "bot.cli.runs:list_runs", "List the newest runs."),
        CommandEntry("run", "bot.cli.runs:run_commands",
            "Show a run (keyturn run 7), or resolve an unknown outcome."),
        CommandEntry("changed", "bot.cli.history:list_changes",
            "Show changes around WHEN with their approvers, most relevant first."),
        CommandEntry("views", "bot.cli.history:list_saved_views",
            "List your saved views: filters of the history, and their web pages."),
    ),
    "Runbooks": (
        CommandEntry("runbooks", "bot.cli.setup:list_runbooks",
            "List runbooks, or show those whose name begins with RUNBOOK."),
        CommandEntry("runbook", "bot.cli.own_runbooks:runbook_commands",
            "Write, try, test and enable your own runbooks."),
    ),
    "Hosts": (
        CommandEntry("hosts", "bot.cli.hosts:show_hosts",
            "List hosts, or show NAME with its status, host key, logins and lock."),
        CommandEntry("locks", "bot.cli.hosts:list_locks",
            "List locked hosts and the runs that wait for them."),
    ),
    "Inventory and policy": (
        CommandEntry("policy", "bot.cli.policy:policy_commands",
            "Validate and explain the policy, and compare it with another."),
    ),
    "Emergency": (
        CommandEntry("stop", "bot.cli.stop:stop_runs",
            "Stop one run, everything, or agent NAME, before the next step or host."),
        CommandEntry("resume", "bot.cli.stop:resume_runs", "Resume after `stop all`."),
        CommandEntry("break-glass", "bot.cli.decisions:explain_break_glass",
            "Show run NUMBER and the page on which break-glass starts it without approvals."),
        CommandEntry("review", "bot.cli.decisions:review_run",
            "Review run NUMBER, which bypassed its approvals by break-glass."),
        CommandEntry("ban", "bot.cli.stop:ban_person", "Ban PERSON immediately."),
        CommandEntry("unban", "bot.cli.stop:unban_person", "Lift the ban of PERSON."),
    ),
    "Access": (
        CommandEntry("sign-in", "bot.cli.setup:create_sign_in_link",
            "Print a link that signs PERSON in on the web, once, within ten minutes."),
        CommandEntry("delegate", "bot.cli.delegations:delegation_commands",
            "Manage delegations: people who decide on behalf of owners."),
        CommandEntry("grant", "bot.cli.delegations:create_grant",
            "Approve requests of PERSON in advance, as an owner of every host of HOSTS."),
        CommandEntry("grants", "bot.cli.delegations:grant_commands",
            "List and revoke standing grants."),
        CommandEntry("factors", "bot.cli.access:factor_commands", "Manage second factors."),
        CommandEntry("token", "bot.cli.access:token_commands", "Manage API tokens."),
    ),
    "Agents": (
        CommandEntry("agent", "bot.cli.access:agent_commands",
            "Manage agents: programs that make requests at /mcp."),
    ),
    "Change log": (
        CommandEntry("changelog", "bot.cli.changelog:changelog_commands",
            "Search, verify and export the change log."),
    ),
    "Backup and database": (
        CommandEntry("backup", "bot.cli.database:back_up_database",
            "Save the whole database in FILE, while the service runs."),
        CommandEntry("restore", "bot.cli.database:restore_database",
            "Restore the backup FILE where there is no database, or an empty one."),
        CommandEntry("db", "bot.cli.database:db", "Manage the database."),
    ),
    "Server": (
        CommandEntry("init", "bot.cli.setup:create_policy_directory",
            "Create a policy directory with comments, for two people who approve for each other."),
        CommandEntry("inventory", "bot.cli.inventory:inventory_commands",
            "Check, import and add hosts."),
        CommandEntry("sudoers", "bot.cli.inventory:print_sudoers",
            "Print the sudoers lines that Keyturn's logins need on HOST."),
        CommandEntry("host-files", "bot.cli.inventory:print_host_files",
            "Print a shell script for root that enrols HOST: it then checks itself who signed "
            "a change."),
        CommandEntry("signing-page", "bot.cli.signing:print_signing_page",
            "Print the page on which people sign plans, for a server other than Keyturn's."),
        CommandEntry("manifest", "bot.server_commands:manifest",
            "Print the Slack app manifest, for Socket Mode or HTTP."),
        CommandEntry("doctor", "bot.server_commands:doctor",
            "Check the installation, and print a fix for each problem."),
        CommandEntry("serve", "bot.server_commands:serve",
            "Run the server: chat, web pages, API and execution."),
        CommandEntry("worker", "bot.server_commands:worker",
            "Run a worker that executes runs on the hosts of a site."),
        CommandEntry("completion", "bot.cli.runs:print_completion",
            "Print a completion script for SHELL."),
    ),
}  # fmt: skip
