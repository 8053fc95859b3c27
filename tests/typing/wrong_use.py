"""What a type checker must refuse: each line's error code stands at its end. Read by mypy --strict only."""

from __future__ import annotations

from client_sdk import LogEntry, TelemetryClient


def wrong(client: TelemetryClient, entry: LogEntry) -> None:
    TelemetryClient("collector.example:443")  # E: call-arg
    TelemetryClient("collector.example:443", True)  # E: call-arg
    TelemetryClient(consent="yes")  # E: arg-type
    TelemetryClient(consent=True, seal_key="0123")  # E: arg-type
    TelemetryClient(consent=True, entropy=bytes)  # E: call-arg
    TelemetryClient(consent=True, can_upload=lambda wifi: wifi)  # E: arg-type  # E: misc
    client.record("cold_start_ms")  # E: call-arg
    client.record("cold_start_ms", None)  # E: arg-type
    client.record("cold_start_ms", {"ms": 812})  # E: arg-type
    client.record(812, "cold_start_ms")  # E: arg-type
    print(client.upload().counted)  # E: attr-defined
    client.flush(True, "2")  # E: arg-type
    entry.reading = 1  # E: attr-defined
    entry.micro_epsilon = 1  # E: misc
    client.no_such_method()  # E: attr-defined
