"""Its rows in the tables of tests; see the tables for what they mean."""

from tests.bot.features.alerts.chat_walk import use_alerts

CHAT_WALKS = {"alerts": use_alerts}
