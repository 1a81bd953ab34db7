"""The steps from an installed service to its first approved change."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from bot.db.database import Transaction
from bot.features.setup.rows import FirstRuns, read_first_runs
from bot.model.check_result import CheckResult, create_warning_result
from bot.model.text import format_count
from bot.policy import Policy
from bot.queries.host_status import PendingHostSummary


@dataclass(frozen=True)
class SetupStep:
    """One step. A step without a command is done on the page of its link."""

    title: str
    is_done: bool
    how: str
    """What to do, in a sentence or two; code between backticks."""
    command: str = ""
    """What root types on the server."""
    link: str = ""
    label: str = ""
    """Of the link."""
    can_wait: bool = False
    """Whether the next steps can be done without it."""


def list_steps(
    policy: Policy,
    runs: FirstRuns,
    *,
    base_url: str,
    enrolling: Sequence[PendingHostSummary] = (),
) -> Sequence[SetupStep]:
    """Return all steps in order, also those that are done.

    base_url: the address of the pages for browsers. enrolling: hosts that a second person has to
    confirm.
    """
    return [
        _build_people_step(policy),
        _build_host_step(policy, enrolling),
        SetupStep(
            "Let others reach these pages",
            base_url.startswith("https://"),
            "Put a proxy with TLS in front (nginx and Caddy are in "
            "`/usr/share/doc/keyturn/installation.md`), set this in "
            "`/etc/keyturn/keyturn.env` and restart. Until then these pages open on the server "
            f"only, or through a tunnel: `ssh -L {_describe_tunnel(base_url)} YOU@SERVER`.",
            "KEYTURN_BASE_URL=https://keyturn.example.com",
            can_wait=True,
        ),
        SetupStep(
            "Run the first check",
            runs.has_checked,
            "A check only reads, and needs no approval. If Keyturn cannot log in to the host, "
            "`keyturn inventory check` says why.",
            link="/runbooks",
            label="Choose a check",
        ),
        SetupStep(
            "Make the first approved change",
            runs.has_changed,
            "Request a change. Keyturn shows the exact commands; another person opens the run, "
            "reads them and approves.",
            link="/runbooks",
            label="Choose a change",
        ),
    ]


def _describe_tunnel(base_url: str) -> str:
    """Return what ssh -L takes to bring the pages to the same address elsewhere."""
    place = urlsplit(base_url)
    port = place.port or 8080
    return f"{port}:{place.hostname or '127.0.0.1'}:{port}"


def _build_people_step(policy: Policy) -> SetupStep:
    people, areas = policy.organisation.people, policy.organisation.areas
    has_pair = any(set(area.owners) & set(people) and len(people) > 1 for area in areas.values())
    return SetupStep(
        "Name two people and their area",
        has_pair,
        "A change needs a second person. `keyturn init` writes a policy for two; afterwards, edit "
        "`people.yaml` and `areas.yaml` and check them. Each gets a link to sign in with "
        "`keyturn sign-in PERSON`.",
        "keyturn policy check",
    )


def _build_host_step(policy: Policy, enrolling: Sequence[PendingHostSummary]) -> SetupStep:
    area = next(iter(policy.organisation.areas), "AREA")
    # The fingerprint itself is not shown: it has to come from the console.
    if enrolling and not policy.inventory.hosts:
        return SetupStep(
            f"Confirm the host {enrolling[0].name}",
            is_done=False,
            how="Another person, with a login of their own on the server, types the fingerprint "
            "that the console of the host shows: "
            "`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`.",
            command=f"keyturn inventory confirm {enrolling[0].name} SHA256:…",
        )
    return SetupStep(
        "Add a host",
        bool(policy.inventory.hosts),
        "Create a login `keyturn` there, and put `keys/keyturn.pub` of the policy directory into "
        "its `authorized_keys`. Tags say what runs on the host, such as `haproxy` or `nginx`.",
        f"keyturn inventory enrol web1 web1.example.com --area {area} --tags nginx",
    )


def find_next(steps: Sequence[SetupStep]) -> SetupStep:
    """Return the step to do next; the last one if each is done."""
    return next((one for one in steps if not (one.is_done or one.can_wait)), steps[-1])


def check_setup(tx: Transaction, policy: Policy) -> Iterator[CheckResult]:
    """Name the next step, for the doctor and the page Health. The address has its own check."""
    runs = read_first_runs(tx)
    if runs.has_changed:
        return
    steps = list_steps(policy, runs, base_url="https://")
    first, count = find_next(steps), format_count(sum(not one.is_done for one in steps), "step")
    what = f"`{first.command}`" if first.command else f"the page {first.link}"
    yield create_warning_result(
        "Set up",
        f"{count} to the first approved change. {first.title}: {what}",
    )
