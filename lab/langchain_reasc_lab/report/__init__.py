"""The report: every table and figure of the paper, and more, on any pools."""

from langchain_reasc_lab.report.output import (
    print_report,
    report_data,
    report_markdown,
    table_csv,
    write_report,
    write_text,
)
from langchain_reasc_lab.report.report import CONTENTS, Entry, Part, Report, make_report
from langchain_reasc_lab.report.study import (
    Parameters,
    Study,
    StudySettings,
    parameters_of,
)
from langchain_reasc_lab.report.tables import Cell, Column, Table

__all__ = [
    "CONTENTS",
    "Cell",
    "Column",
    "Entry",
    "Parameters",
    "Part",
    "Report",
    "Study",
    "StudySettings",
    "Table",
    "make_report",
    "parameters_of",
    "print_report",
    "report_data",
    "report_markdown",
    "table_csv",
    "write_report",
    "write_text",
]
