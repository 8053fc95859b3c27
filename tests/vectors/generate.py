"""Writes the vector files anew: `python -m tests.vectors.generate`, from the repository's root.

Everything follows from labels (`layout.drawn`), so the files change only where the protocol or the entries do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.vectors import certificates, direct, messages, plans, primitives, refusals, rounds, shares, trees
from tests.vectors.layout import FOLDER, as_text

FILES: dict[str, Callable[[], dict[str, Any]]] = {
    "keys": primitives.keys_document,
    "masks": primitives.masks_document,
    "shamir": shares.shamir_document,
    "sealed_shares": shares.sealed_document,
    "certificates": certificates.certificates_document,
    "adverts": trees.adverts_document,
    "rosters": trees.rosters_document,
    "trees": trees.trees_document,
    "graphs": trees.graphs_document,
    "sizes": trees.sizes_document,
    "messages": messages.messages_document,
    "round": rounds.round_document,
    "refusals": refusals.refusals_document,
    "sparse_round": rounds.sparse_document,
    "plans": plans.plans_document,
    "direct": direct.direct_document,
}


def main() -> None:
    for name, document in FILES.items():
        (FOLDER / f"{name}.json").write_text(as_text(document()))


if __name__ == "__main__":
    main()
