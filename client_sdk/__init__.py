"""ldp-telemetry's device SDK: learn how a fleet behaves without learning what any one device did.

    from client_sdk import TelemetryClient

    client = TelemetryClient("collector.example:443", plan="plan.toml", data_dir="...", consent=True)
    client.record("cold_start_ms", 812)
    client.close()

Importing this package loads nothing else: each public name is imported when it is first used, and grpc,
numpy, protobuf and cryptography not before the first upload.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from client_sdk.device.client import TelemetryClient
    from client_sdk.device.preview import MetricPreview, Preview, ReportPreview
    from client_sdk.device.records import LogEntry, WaitingReport
    from client_sdk.device.views import BudgetView, UploadSummary
    from client_sdk.errors import (
        BudgetExceededError,
        ConfigurationError,
        MissingExtraError,
        PlanError,
        RefusalReason,
        StorageError,
        TelemetryError,
        ValueRefusedError,
    )
    from client_sdk.files import load_plan
    from client_sdk.mechanisms import Estimate
    from client_sdk.plan import Plan, parse_plan

__version__ = "0.1.0"

__all__ = [
    "BudgetExceededError",
    "BudgetView",
    "ConfigurationError",
    "Estimate",
    "LogEntry",
    "MetricPreview",
    "MissingExtraError",
    "Plan",
    "PlanError",
    "Preview",
    "RefusalReason",
    "ReportPreview",
    "StorageError",
    "TelemetryClient",
    "TelemetryError",
    "UploadSummary",
    "ValueRefusedError",
    "WaitingReport",
    "load_plan",
    "parse_plan",
]

_HOME = {
    "BudgetExceededError": "errors",
    "BudgetView": "device.views",
    "ConfigurationError": "errors",
    "Estimate": "mechanisms",
    "LogEntry": "device.records",
    "MetricPreview": "device.preview",
    "MissingExtraError": "errors",
    "Plan": "plan",
    "PlanError": "errors",
    "Preview": "device.preview",
    "RefusalReason": "errors",
    "ReportPreview": "device.preview",
    "StorageError": "errors",
    "TelemetryClient": "device.client",
    "TelemetryError": "errors",
    "UploadSummary": "device.views",
    "ValueRefusedError": "errors",
    "WaitingReport": "device.records",
    "load_plan": "files",
    "parse_plan": "plan",
}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
