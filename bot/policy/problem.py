"""A problem of a policy: what is wrong or doubtful there, and where. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PolicyProblem:
    """message: what is wrong and what to do. file, line: "" and None where it is of no one."""

    message: str
    file: str = ""
    line: int | None = None

    def __str__(self) -> str:
        line = f"line {self.line}" if self.line else ""
        where = ", ".join(filter(None, (self.file, line)))
        return f"{where}: {self.message}" if where else self.message


class NoPolicyError(Exception):
    """There is no valid policy, so nobody may do anything. The problems are why."""

    def __init__(self, *problems: PolicyProblem) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(map(str, self.problems))
