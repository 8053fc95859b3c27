"""Secure aggregation, sans-IO: time, entropy and messages come in as arguments.

The protocol in prose, and who knows what, stands in `protos/README.md`; the steps in `messages.py`.
Sources: Bonawitz et al. 2017 (eprint 2017/281), Bell et al. 2020 (eprint 2020/704).
"""
