"""Problems of a policy and their places in its files. Pure."""

from dataclasses import dataclass

from connectors.errors import DomainError


@dataclass(frozen=True)
class PolicyProblem:
    """One problem of a policy."""

    message: str
    """What is wrong and what to do."""
    file: str = ""
    """The name of the file; "" if the problem is not in one file."""
    line: int | None = None
    """From 1; None if the problem is not on one line."""

    def __str__(self) -> str:
        line = f"line {self.line}" if self.line else ""
        where = ", ".join(filter(None, (self.file, line)))
        return f"{where}: {self.message}" if where else self.message


class NoPolicyError(DomainError):
    """There is no valid policy, so everything is refused. The problems say why."""

    code, status, retry_seconds = "policy-unavailable", 503, 5

    def __init__(self, *problems: PolicyProblem) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(map(str, self.problems))

    @property
    def public_message(self) -> str:
        return (
            "the policy is not valid, so Keyturn refuses every request. Run `keyturn policy "
            "check` on the server: it prints each error and its fix"
        )
