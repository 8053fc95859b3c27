"""A report as one page: charts.py where lines go, page.py what stands where; the template turns it into text."""

from collector.reports.html.page import PageData, html_report

__all__ = ["PageData", "html_report"]
