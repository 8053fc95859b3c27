"""The registrar: says which identities are devices'. A process of its own, with its own key and store.

It is meant to be run by another party than the collector: whoever holds its key can make up devices, and a
collector that could would fill cohorts with its own. It never sees a report, a plan or a sum.

key.py the signing key, issuing.py what a certificate says and when it is renewed (pure), store.py tokens, identities
and revocations, service.py the gRPC service, folder.py where all of it lies, refusals.py what the log says of refusals.
"""
