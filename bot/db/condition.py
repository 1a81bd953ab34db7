"""A condition: SQL that a row must fit, with the values that it names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import TextClause, text

_NAMED = re.compile(r":(\w+)")


@dataclass(frozen=True)
class Condition:
    """What a row must fit."""

    sql: str = ""
    """Values as `:name`. Empty where every row fits."""
    given: Mapping[str, object] = field(default_factory=dict[str, object])
    """The values by their names."""

    def clause(self) -> TextClause:
        """Return it for a statement of SQLAlchemy."""
        if not self.sql:
            return text("1 = 1")
        named = {name: self.given[name] for name in _NAMED.findall(self.sql)}
        return text(self.sql).bindparams(**named)
