"""The doctor: looks at an installation from every side, and changes nothing."""

from bot.doctor.examination import examine
from bot.doctor.patient import Patient

__all__ = ["Patient", "examine"]
