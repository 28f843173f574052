"""What a report becomes: a page, Markdown, CSV, JSON, or lines in a terminal."""

from langchain_reasc_lab.report.rendering.data import report_data
from langchain_reasc_lab.report.rendering.markdown import pictures, report_markdown
from langchain_reasc_lab.report.rendering.page import report_page
from langchain_reasc_lab.report.rendering.terminal import print_report
from langchain_reasc_lab.report.rendering.tidy import report_csv

__all__ = ["pictures", "print_report", "report_csv", "report_data", "report_markdown", "report_page"]
