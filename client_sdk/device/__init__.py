"""The device: the only room of the SDK that touches disk, network, clock, entropy, threads or environment.

client    what the host application holds        settings  its configuration, checked once
period    one period's readings until the seal   storage   identity, ledger, spool, log: one SQLite file
uploader  the background thread                  delivery  one pass over the spool
session   one report through one stream          transport the channel under it

Nothing here is imported by `from client_sdk import TelemetryClient` but `client`, `settings` and `period`,
and those import only what every Python process has loaded anyway.
"""
