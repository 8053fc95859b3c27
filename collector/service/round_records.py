"""A finished round as the rows that are stored of it: what was released, or why nothing was."""

from __future__ import annotations

from collections.abc import Sequence

from client_sdk.errors import AbortReason
from collector.secagg.round import Round
from collector.service.logs import fields
from collector.service.mailbox import Member
from collector.service.storage_rows import Blamed, Contributor, Release, RoundRecord


def release_of(round_: Round, members: Sequence[Member], totals: list[int], seconds: float, now: float) -> Release:
    """`totals` over the round's survivors. members: in roster order; seconds: since the round was formed."""
    survivors = [members[index] for index in sorted(round_.survivors)]
    return Release(
        round_id=round_.round_id,
        plan=members[0].plan,
        period_start=members[0].advert.period_start,
        totals=totals,
        contributors=[Contributor(m.device_id, m.advert.report_id, m.advert.resent) for m in survivors],
        roster_size=len(members),
        resent=sum(member.advert.resent for member in survivors),
        dropouts=round_.dropouts,
        seconds=seconds,
        now=int(now),
        blamed=_blamed(round_, members),
    )


def aborted_record(
    round_: Round, members: Sequence[Member], reason: AbortReason, seconds: float, now: float
) -> RoundRecord:
    """A round without a sum: reason, counts and whom it blames."""
    return RoundRecord(
        round_id=round_.round_id,
        plan_hash=members[0].plan.hash,
        period_start=members[0].advert.period_start,
        joined=len(members),
        contributors=0,
        dropouts=round_.dropouts,
        outcome="aborted",
        reason=reason.value,
        seconds=seconds,
        finished_at=int(now),
        blamed=_blamed(round_, members),
    )


def released_fields(release: Release) -> dict[str, object]:
    """What the log says of it, beside its text."""
    return fields(
        "round_released",
        round=release.round_id,
        joined=release.roster_size,
        contributors=len(release.contributors),
        dropouts=dict(release.dropouts),
        seconds=round(release.seconds, 3),
    )


def aborted_fields(record: RoundRecord) -> dict[str, object]:
    """What the log says of it, beside its text."""
    return fields(
        "round_aborted",
        round=record.round_id,
        reason=record.reason,
        joined=record.joined,
        dropouts=dict(record.dropouts),
        seconds=round(record.seconds, 3),
    )


def _blamed(round_: Round, members: Sequence[Member]) -> list[Blamed]:
    return [Blamed(members[blame.index].device_id, blame.fault.value) for blame in round_.blamed]
