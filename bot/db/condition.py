"""SQL conditions with their parameters."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import TextClause, text

_NAMED = re.compile(r"(?<!:):(\w+)")


def bind_text(sql: str, given: Mapping[str, object]) -> TextClause:
    """Return SQL with its values bound, each where it stands as `:name`.

    given: values by their names; those that the SQL does not name are left out.
    """
    return text(sql).bindparams(**{name: given[name] for name in _NAMED.findall(sql)})


@dataclass(frozen=True)
class Condition:
    """A condition on rows."""

    sql: str = ""
    """Values as `:name`. Empty where every row fits."""
    given: Mapping[str, object] = field(default_factory=dict[str, object])
    """The values by their names."""

    def clause(self) -> TextClause:
        """Return the condition as a clause for SQLAlchemy."""
        return bind_text(self.sql or "1 = 1", self.given)
