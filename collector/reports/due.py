"""Which windows a nightly job has to write, told from what the source holds now and what was written before.

Rules of this file: a window is written when it has closed, and again for as long as its grace lasts when its sums have
changed; then it is final. A final report holds the rounds that had ended when its grace was over, whenever the job came
by: it is a function of the source, never of when somebody ran something. What came later is counted, never added and
never passed over. Nothing here reads a clock: what has been done is known from manifests, and the moment comes in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from collector.reports.manifest import WindowManifest
from collector.reports.windows import Window, place_in

SETTLE_S: Final = 60
"""A round that ended within the grace is in the store by then; a report is made final no sooner."""


class Round(NamedTuple):
    """A released one. plan_hash: lower hex digits."""

    period_start: int
    round_id: str
    plan_hash: str
    reports: int
    finished_at: int


@dataclass(frozen=True, slots=True)
class Held:
    """What a source holds of a window. digest: of its rounds; those in `late` ended after its grace and are not in it.

    plans: hashes of those that the rounds are of.
    """

    window: Window
    digest: str
    rounds: int
    reports: int
    plans: tuple[str, ...] = ()
    late: frozenset[str] = frozenset()
    late_reports: int = 0


def held_of(window: Window, rounds: Iterable[Round], late_from: int) -> Held:
    """rounds: of the window, in any order."""
    found = sorted(rounds)
    inside = [one for one in found if one.finished_at < late_from]
    late = [one for one in found if one.finished_at >= late_from]
    digest = hashlib.sha256()
    for one in inside:
        digest.update(("\0".join(map(str, one)) + "\n").encode())
    return Held(
        window, digest.hexdigest(), len(inside), sum(one.reports for one in inside),
        tuple(sorted({one.plan_hash for one in inside})), frozenset(one.round_id for one in late),
        sum(one.reports for one in late),
    )  # fmt: skip


def every_held(
    windows: Sequence[Window], rounds: Iterable[Round], late_from: Callable[[Window], int]
) -> Iterator[Held]:
    """Of each window, those without a round too. rounds: by period, so that one window's are held at a time."""
    place = place_in(windows)
    following = 0
    for found, group in groupby(rounds, key=lambda one: place(b"", one.period_start)):
        if found is None:  # before the first, or in one that has not closed
            continue
        for empty in windows[following:found]:
            yield held_of(empty, (), late_from(empty))
        yield held_of(windows[found], group, late_from(windows[found]))
        following = found + 1
    for empty in windows[following:]:
        yield held_of(empty, (), late_from(empty))


@dataclass(frozen=True, slots=True)
class Due:
    """What to do about a window. outputs: which to write; none: its manifest alone. why: for people.

    missing: rounds that its final report was made of and that the source holds no more.
    """

    held: Held
    outputs: tuple[str, ...]
    is_final: bool
    late_from: int
    why: str
    missing: bool = False


def late_from_of(window: Window, manifest: WindowManifest | None, grace_s: int) -> int:
    """A round that ends from then on is late; what a final report was made with stays."""
    return manifest.late_from if manifest is not None and manifest.is_final else window.until + grace_s


def due_of(
    held: Held,
    manifest: WindowManifest | None,
    as_of: int,
    grace_s: int,
    wanted: Sequence[str],
    present: Collection[str],
) -> Due | None:
    """None: nothing. as_of: the moment that the source shows. present: outputs that are there as the manifest says."""
    late_from = late_from_of(held.window, manifest, grace_s)
    is_final = as_of >= late_from + SETTLE_S
    if manifest is None:
        return Due(held, tuple(wanted), is_final, late_from, "closed")
    absent = tuple(name for name in wanted if name not in present)
    if manifest.is_final:
        differs = held.digest != manifest.digest
        late = late_of(held, manifest)
        if differs and (absent or held.rounds + len(held.late) < manifest.rounds):
            why = "the source does not hold what it was made of any more"
            return Due(held, (), is_final=True, late_from=late_from, why=why, missing=True)
        if absent:
            return Due(held, absent, is_final=True, late_from=late_from, why="outputs are missing")
        if late == manifest.late:
            return None
        return Due(held, (), is_final=True, late_from=late_from, why="cohorts came too late")
    if held.digest != manifest.digest:
        return Due(held, tuple(wanted), is_final, late_from, "its sums have changed")
    if absent:
        return Due(held, absent, is_final, late_from, "outputs are missing")
    if (is_final, late_from, late_of(held, None)) != (False, manifest.late_from, manifest.late):
        return Due(held, (), is_final, late_from, "its grace is over" if is_final else "its grace has changed")
    return None


def late_of(held: Held, manifest: WindowManifest | None) -> Mapping[str, int]:
    """Rounds, and the reports in them, that are in the source and not in the report."""
    if manifest is None or not manifest.is_final:
        return {"rounds": len(held.late), "reports": held.late_reports}
    rounds = held.rounds + len(held.late) - manifest.rounds
    return {"rounds": max(rounds, 0), "reports": max(held.reports + held.late_reports - manifest.reports, 0)}
