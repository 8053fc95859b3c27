"""Which version of us is installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """As the package says it; `not installed` for a checkout that runs from its folder."""
    try:
        return version("ldp-telemetry")
    except PackageNotFoundError:
        return "not installed"
