"""What the instructor and the learners read of a graded class: pages, tables, and the files of other programs."""

from grading.reports.formats import Format
from grading.reports.writing import Options, write_reports

__all__ = ["Format", "Options", "write_reports"]
