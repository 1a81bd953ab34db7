"""The charter: what the policy lets people do, in plain words that come from the rules."""

from bot.charter.charter import Chapter, Charter, Clause, Domain, Frost
from bot.charter.drafting import charter

__all__ = ["Chapter", "Charter", "Clause", "Domain", "Frost", "charter"]
