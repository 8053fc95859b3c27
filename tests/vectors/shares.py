"""Shares of a seed: dealt, sealed, hashed, combined. Made with the SDK's own code."""

from __future__ import annotations

from typing import Any

from client_sdk.identity import IdentityKey
from client_sdk.secagg import dealing, keys, shamir, transcript
from tests.vectors.layout import DIGEST, Entry, drawn, flipped
from tests.vectors.primitives import signed_entry

# --- shamir.json -------------------------------------------------------------------------------------


def shamir_document() -> dict[str, Any]:
    return {
        "about": "Section 8, Shares. `coefficients[i]` is that of x^(i + 1); `shares` by x.",
        "prime": f"{shamir.PRIME:x}",
        "splits": [
            _split("secret", 1, 3, (1, 2, 3)),
            _split("secret", 2, 3, (1, 2, 3)),
            _split("secret", 5, 9, (1, 2, 3, 4, 5, 6, 7, 8, 9)),
            _split(bytes(32), 3, 4, (1, 4)),
            _split(b"\xff" * 32, 3, 4, (1, 4), b"\xff" * 64),
            _split("secret", 16, 30, (1, 15, 16, 30)),
            _split("secret", 98, 138, (1, 69, 138)),
            _split("secret", 4, 1023, (1, 2, 512, 1022, 1023)),
        ],
        "combinations": [
            _combination(2, 3, (1, 3)),
            _combination(3, 5, (2, 4, 5)),
            _combination(3, 1023, (1, 512, 1023)),
            _combination(7, 12, (1, 3, 4, 7, 9, 11, 12)),
            _combination(3, 5, (5, 1, 3)),
        ],
        "bad_combinations": _bad_combinations(),
    }


def _coefficients(label: str, threshold: int) -> bytes:
    return drawn(f"coefficients of {label}", 32 * (threshold - 1))


def _shares(secret: bytes, threshold: int, holders: int, pool: bytes) -> list[bytes]:
    # split draws the coefficient of the highest power first; the files name them from x^1 on.
    return shamir.split(secret, threshold, holders, lambda size: _reversed(pool)[:size])


def _reversed(pool: bytes) -> bytes:
    return b"".join(pool[i : i + 32] for i in range(len(pool) - 32, -1, -32))


def _split(
    secret: bytes | str, threshold: int, holders: int, shown: tuple[int, ...], pool: bytes | None = None
) -> Entry:
    value = drawn(secret) if isinstance(secret, str) else secret
    pool = _coefficients(f"{threshold} of {holders}", threshold) if pool is None else pool
    shares = _shares(value, threshold, holders, pool)
    return {
        "threshold": threshold,
        "secret": value,
        "coefficients": [pool[i : i + 32] for i in range(0, len(pool), 32)],
        "shares": {x: shares[x - 1] for x in shown},
    }


def _combination(threshold: int, holders: int, xs: tuple[int, ...]) -> Entry:
    secret = drawn(f"secret {xs}")
    shares = _shares(secret, threshold, holders, _coefficients(f"{xs}", threshold))
    chosen = [shares[x - 1] for x in xs]
    assert shamir.combine(xs, chosen) == secret
    return {"xs": xs, "shares": chosen, "secret": secret}


def _bad_combinations() -> list[Entry]:
    secret = drawn("secret")
    shares = _shares(secret, 3, 5, _coefficients("bad", 3))[:3]
    above = (int.from_bytes(shares[0], "big") + 2**256 + 297).to_bytes(34, "big")[-33:]
    prime = shamir.PRIME.to_bytes(33, "big")
    too_large = [value.to_bytes(33, "big") for value in (2**256, 2**256, 2**256)]
    bad = [
        ("a share is the prime", "malformed", (1, 2, 3), [prime, *shares[1:]]),
        ("a share is the right one plus the prime", "malformed", (1, 2, 3), [above, *shares[1:]]),
        ("a share is 2^264 - 1", "malformed", (1, 2, 3), [b"\xff" * 33, *shares[1:]]),
        ("a share of 32 bytes", "malformed", (1, 2, 3), [shares[0][1:], *shares[1:]]),
        ("a share of 34 bytes", "malformed", (1, 2, 3), [b"\0" + shares[0], *shares[1:]]),
        ("x = 0", "malformed", (0, 2, 3), shares),
        ("one x twice", "malformed", (1, 2, 2), [shares[0], shares[1], shares[1]]),
        ("fewer shares than xs", "malformed", (1, 2, 3), shares[:2]),
        ("the constant coefficient is 2^256", "wrong_shares", (1, 2, 3), too_large),
    ]
    return [{"xs": xs, "shares": given, "why": why, "refused": reason} for why, reason, xs, given in bad]


# --- sealed_shares.json ------------------------------------------------------------------------------

OWNER, HOLDER = 0, 4
SEEDS = {index: drawn(f"channel key of {index}") for index in (OWNER, HOLDER)}


def sealed_document() -> dict[str, Any]:
    identity = IdentityKey(drawn("identity 0"))
    hashes = b"".join(_dealt(OWNER, HOLDER)["share_hashes"] for _ in range(2))
    signed = transcript.share_hashes_message(DIGEST, OWNER, hashes)
    return {
        "about": "Sections 7 and 8: pairs of shares, sealed and hashed, both directions between two members.",
        "sealed": [_dealt(OWNER, HOLDER), _dealt(HOLDER, OWNER)],
        "signed_hashes": [
            signed_entry("share-hashes", identity, signed, roster_digest=DIGEST, owner=OWNER, share_hashes=hashes)
        ],
        "unusable": _unusable(),
    }


def _pair(owner: int) -> keys.SharePair:
    shares = shamir.split(drawn(f"seed of {owner}"), 2, 2, lambda size: drawn(f"pair of {owner}", size))
    return keys.SharePair(*shares)


def _dealt(owner: int, holder: int, pair: keys.SharePair | None = None) -> Entry:
    pair = _pair(owner) if pair is None else pair
    peer = keys.public_bytes(keys.load_private(SEEDS[holder]))
    sending, _ = keys.channel_keys(keys.load_private(SEEDS[owner]), keys.load_public(peer), DIGEST, owner, holder)
    return {
        "roster_digest": DIGEST,
        "owner": owner,
        "holder": holder,
        "owner_channel_seed": SEEDS[owner],
        "holder_channel_seed": SEEDS[holder],
        "mask_share": pair.mask_share,
        "self_share": pair.self_share,
        "share_key": sending,
        "sealed": keys.seal_pair(sending, pair, DIGEST),
        "share_hashes": dealing.pair_hashes(DIGEST, owner, holder, pair),
    }


def _unusable() -> list[Entry]:
    """What holder 4 got from owner 0; only what it needs to judge."""
    good, reflected = _dealt(OWNER, HOLDER), _dealt(HOLDER, OWNER)
    pair, sealed, hashes = _pair(OWNER), good["sealed"], good["share_hashes"]
    swapped = keys.SharePair(pair.self_share, pair.mask_share)
    large = _dealt(OWNER, HOLDER, keys.SharePair(shamir.PRIME.to_bytes(33, "big"), pair.self_share))
    elsewhere = dealing.pair_hashes(DIGEST, OWNER, HOLDER + 1, pair)
    turned = dealing.pair_hashes(DIGEST, HOLDER, OWNER, pair)
    other_round = dealing.pair_hashes(flipped(DIGEST), OWNER, HOLDER, pair)
    bad = [
        ("a bit of the first share", flipped(sealed, 0), hashes),
        ("a bit of the second share", flipped(sealed, 65), hashes),
        ("a bit of the tag", flipped(sealed, -1, 7), hashes),
        ("81 bytes", sealed[:81], hashes),
        ("83 bytes", sealed + b"\0", hashes),
        ("my own pair for the owner, sent back to me", reflected["sealed"], reflected["share_hashes"]),
        ("sealed in another round", keys.seal_pair(good["share_key"], pair, flipped(DIGEST)), hashes),
        ("the mask-key share's hash is wrong", sealed, flipped(hashes, 0)),
        ("the self-mask share's hash is wrong", sealed, flipped(hashes, 32)),
        ("the two hashes changed places", sealed, hashes[32:] + hashes[:32]),
        ("the two shares changed places", _dealt(OWNER, HOLDER, swapped)["sealed"], hashes),
        ("hashes for another holder", sealed, elsewhere),
        ("owner and holder changed places in the hashes", sealed, turned),
        ("hashes of another round", sealed, other_round),
        ("a share is the prime, its hash fits", large["sealed"], large["share_hashes"]),
    ]
    facts = {name: good[name] for name in ("roster_digest", "owner", "holder", "holder_channel_seed")}
    facts["owner_channel_key"] = keys.public_bytes(keys.load_private(SEEDS[OWNER]))
    return [{"sealed": s, "share_hashes": h, "why": w, "refused": "unusable", **facts} for w, s, h in bad]
