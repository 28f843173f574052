"""The laboratory: every table and figure of the paper, and what it left out, on anybody's pools; and their report."""

from langchain_reasc_lab.report.output import pictures, print_report, report_csv, report_data, report_markdown
from langchain_reasc_lab.report.page import check_page_extra, report_page
from langchain_reasc_lab.report.report import Entry, Made, Report, chosen_entries, contents, make_report
from langchain_reasc_lab.report.study import Study, StudySettings
from langchain_reasc_lab.report.tables import Cell, Column, Figure, Table

__all__ = [
    "Cell",
    "Column",
    "Entry",
    "Figure",
    "Made",
    "Report",
    "Study",
    "StudySettings",
    "Table",
    "check_page_extra",
    "chosen_entries",
    "contents",
    "make_report",
    "pictures",
    "print_report",
    "report_csv",
    "report_data",
    "report_markdown",
    "report_page",
]
