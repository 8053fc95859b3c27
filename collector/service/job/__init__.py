"""The nightly job: reports of all windows that have closed, each in a folder of its own, written once and whole.

    config.py     the file that says what, from where and where to
    source.py     what the store or an export holds, as of one moment
    running.py    one run: which windows are due, in which order things are written
    outputs.py    a window's files, as bytes
    files.py      files that are there whole or not at all, and the lock
    telemetry.py  gauges for Prometheus and OpenTelemetry
    progress.py   a bar on a terminal, log lines elsewhere

Which windows are due `collector.reports.due` decides.
"""
