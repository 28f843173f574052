"""The report: every table and figure of the paper, and more, on any pools."""

from langchain_reasc_lab.report.contents import Entry, chosen_entries, contents
from langchain_reasc_lab.report.output import pictures, print_report, report_csv, report_data, report_markdown
from langchain_reasc_lab.report.page import check_page_extra, report_page
from langchain_reasc_lab.report.report import Made, Report, make_report
from langchain_reasc_lab.report.study import Parameters, Study, StudySettings, parameters_of
from langchain_reasc_lab.report.tables import Cell, Column, Figure, Table

__all__ = [
    "Cell",
    "Column",
    "Entry",
    "Figure",
    "Made",
    "Parameters",
    "Report",
    "Study",
    "StudySettings",
    "Table",
    "check_page_extra",
    "chosen_entries",
    "contents",
    "make_report",
    "parameters_of",
    "pictures",
    "print_report",
    "report_csv",
    "report_data",
    "report_markdown",
    "report_page",
]
