"""The wire: generated code (`*_pb2`, never edited) and `convert`, the only file that knows both worlds.

`shapes` is the table of what is accepted, `limits` its sizes, `messages` the small services' messages,
`methods` the services' names. Specified for other languages in `protos/README.md`.
"""
