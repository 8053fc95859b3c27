"""The plans that a collector serves: looked at once, at its start, before its port is open.

Rules of this file: what cannot work with these plans is one line that names the file; a plan version that the store
knows with other contents is refused there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from client_sdk.errors import ConfigurationError
from client_sdk.files import load_plan_signature, signature_path
from client_sdk.plan import Plan
from collector.service.catalogue import Catalogue
from collector.service.storage import CollectorStore
from collector.service.stored_plans import stored_plan


def signatures(paths: Sequence[Path], plans: Sequence[Plan]) -> dict[bytes, bytes]:
    """The operator's, for those plans that have one beside them. ConfigurationError for one under something else."""
    found = {}
    for path, plan in zip(paths, plans, strict=True):
        signature = load_plan_signature(path)
        if signature is None:
            continue
        if not signature.holds(plan):
            raise ConfigurationError(
                f"{signature_path(path)}: does not hold under {path} as it is; sign that again, or remove this file"
            )
        found[plan.hash] = signature.signature
    return found


def check_registrar(paths: Sequence[Path], plans: Sequence[Plan], registrar_key: bytes) -> None:
    """A plan's devices believe the registrar that it names: with another one here, none of them would be taken."""
    for path, plan in zip(paths, plans, strict=True):
        if plan.registrar is not None and plan.registrar.key != registrar_key:
            raise ConfigurationError(
                f"{path}: its [registrar] has another key than --registrar-key; devices of this plan would be refused"
            )


def catalogue(store: CollectorStore, plans: list[Plan], signed: Mapping[bytes, bytes], now: int) -> Catalogue:
    """These plans, kept in the store, and what it has of their older versions. Raises PlanError."""
    for plan in plans:
        store.put_plan(plan, now)
    names = {plan.name for plan in plans}
    older = [stored_plan(stored.text) for stored in store.plans() if stored.name in names]
    return Catalogue([*older, *plans], signed)
