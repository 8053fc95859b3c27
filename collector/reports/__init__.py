"""What an operator reads, as plain data and plain text: built from rows, without a store, a clock or a screen.

report.py the estimates, privacy.py what a device has spent, fleet.py the same over all, text.py instants, JSON and CSV.
"""

from collector.reports.fleet import fleet_privacy
from collector.reports.privacy import all_devices, device_ledger
from collector.reports.report import UnknownMetricError, build_report
from collector.reports.text import parse_instant, to_csv, to_json

__all__ = [
    "UnknownMetricError",
    "all_devices",
    "build_report",
    "device_ledger",
    "fleet_privacy",
    "parse_instant",
    "to_csv",
    "to_json",
]
