"""What the devices have spent, as the collector has booked it: for one device and for all; `fleet.py` over the fleet.

Three figures for each window, all for *replace one value*: pure local epsilon by basic composition (what somebody
could learn who sees every report of the device unmasked, with certainty), local epsilon at delta by exact composition,
and central epsilon at delta against somebody who sees only sums. The last never goes without its n_h and its
conditions. The lifetime is always shown: a window that has emptied is no budget renewed.

What it does not do: it knows nothing of reports that left a device and are in no sum; only the device's own ledger
does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any, Final

from client_sdk.accounting.budget import MICRO, format_micro
from client_sdk.accounting.ledger import Ledger
from client_sdk.accounting.ledger_reader import read_ledger
from client_sdk.accounting.loss import RELATION
from client_sdk.accounting.words import in_words
from collector.accounting.allowance import Allowance
from collector.accounting.basic import WINDOWS, Amount, DeviceHistory, DeviceSpending, best_certainty
from collector.accounting.figures import ACCOUNTANT, CONDITIONS, FallbackRound, Figures, figures
from collector.accounting.fleet import FleetFigures
from collector.plan_texts import read_plan
from collector.reports.text import Cell, format_instant, micro_as_number

LIFETIME: Final = "lifetime"
ALL_WINDOWS: Final = (*WINDOWS, LIFETIME)

FIGURES: Final = (
    "failed_but_spent", "eps_local_pure", "eps_local", "method", "eps_central", "n_h", "n_min", "cap", "left",
    "stops_on", "central_method", "eps_delta",
)  # fmt: skip
DEVICE_COLUMNS = ("device", "window", "reports", "epsilon_local", *FIGURES)
TABLE_COLUMNS = ("window", "reports", *FIGURES[:-2])
ALL_COLUMNS = (*DEVICE_COLUMNS, "resent_reports", *(f"epsilon_local_{window}" for window in ALL_WINDOWS))
ALL_TABLE_COLUMNS = (
    "device", "window", "reports", "eps_local_pure", "eps_local", "eps_central", "n_h", "n_min", "left", "stops_on",
    "method", "central_method",
)  # fmt: skip


def composition(*, is_pure: bool) -> dict[str, Any]:
    """What the fields `epsilon_local` mean; what is computed otherwise stands under another name, with its delta.

    is_pure: no plan has Gaussian noise. Where one has, a sum of epsilons holds but for the sum of its reports' deltas:
    `delta` is null, unless it is the largest of those that are shown (`with_figures`).
    """
    return {"relation": RELATION, "composition": "basic", "delta": 0 if is_pure else None}


# --- one device -------------------------------------------------------------------------------------


def device_ledger(spending: DeviceSpending, *, is_pure: bool) -> dict[str, Any]:
    """One device as booked: reports, each window and the lifetime, first and last period, and what it means.

    is_pure: see `composition`.
    """
    return {
        "device": spending.device_id,
        "reports": spending.lifetime.reports,
        "resent_reports": spending.resent_reports,
        "first_period": format_instant(spending.first_period_start),
        "last_period": format_instant(spending.last_period_start),
        "windows": [
            {
                "window": window,
                "reports": amount.reports,
                "epsilon_local": micro_as_number(amount.micro_epsilon),
                "micro_epsilon": amount.micro_epsilon,
            }
            for window, amount in _amounts(spending)
        ],
        "best_certainty": best_certainty(spending.lifetime.micro_epsilon),
        **composition(is_pure=is_pure),
    }


def with_ledger(document: Mapping[str, Any], ledger: Ledger, texts: Mapping[bytes, str]) -> dict[str, Any]:
    """Such a document with what its figures are computed from: the ledger, and the text of each of its plans."""
    plans = {used.hash: texts[bytes.fromhex(used.hash)] for used in ledger.plans}
    return {**document, "ledger": ledger.to_json(), "plans": plans}


def with_figures(
    document: Mapping[str, Any], windows: Sequence[str], delta: float, corrupt: Fraction | None
) -> dict[str, Any]:
    """A document `with_ledger`, with the figures of these windows, and without the plans' texts.

    corrupt: None: as each plan says. Raises ConfigurationError for a ledger that is none, PlanError for a plan that
    this version reads otherwise.
    """
    ledger = read_ledger(document["ledger"])
    plans = {plan_hash: read_plan(text, plan_hash) for plan_hash, text in document["plans"].items()}
    booked = {row["window"]: row for row in document["windows"]}
    shown = {window: figures(ledger, plans, delta=delta, corrupt=corrupt, window=window) for window in windows}
    kept = {key: value for key, value in document.items() if key not in {"ledger", "plans"}}
    delta_pure = max((one.delta_pure for one in shown.values()), default=Decimal(0))
    return {
        **kept,
        "delta": float(delta_pure) if delta_pure else 0,  # of the plain sums: Gaussian noise is pure at no epsilon
        "windows": [{**booked[window], **figures_row(one)} for window, one in shown.items()],
        "in_words": {window: _in_words(one) for window, one in shown.items()},
        "conditions": CONDITIONS,
        "accountant": ACCOUNTANT,
    }


def figures_row(one: Figures) -> dict[str, Any]:
    """FIGURES of one window, and what only a document of one device says beside them."""
    return {
        "failed_but_spent": one.failed_but_spent,
        "eps_local_pure": float(one.eps_local_pure),
        "eps_local": one.eps_local,
        "method": one.method,
        "eps_central": one.eps_central,
        "n_h": one.n_h,
        "n_min": one.n_min,
        **_allowance_row(one.allowance),
        "central_method": one.central_method,
        "eps_delta": one.delta,
        "fallbacks": dict(one.fallbacks),
        "fallback_rounds": [_fallback(row) for row in one.fallback_rounds],
        **({"delta_pure": float(one.delta_pure)} if one.delta_pure else {}),
    }


def _allowance_row(left: Allowance) -> dict[str, Any]:
    return {
        "cap": micro_as_number(left.cap_micro_epsilon),
        "left": micro_as_number(left.left_micro_epsilon),
        "stops_on": format_instant(left.stops_on),
    }


def _fallback(row: FallbackRound) -> dict[str, Any]:
    period = format_instant(row.period_start)
    return {"round": row.round, "period": period, "reason": row.reason, "reports": row.reports}


def _in_words(one: Figures) -> dict[str, str]:
    return {
        "local": in_words(one.eps_local, one.delta).sentence,
        "central": in_words(one.eps_central, one.delta).sentence,
    }


def device_rows(document: Mapping[str, Any]) -> list[list[Cell]]:
    """Such a document as one row per window, in DEVICE_COLUMNS."""
    return [
        [document["device"], row["window"], row["reports"], as_plain(row["epsilon_local"]), *(row[f] for f in FIGURES)]
        for row in document["windows"]
    ]


def table_rows(document: Mapping[str, Any]) -> list[list[Cell]]:
    """The same for the eye, in TABLE_COLUMNS."""
    return [[_shown(name, row[name]) for name in TABLE_COLUMNS] for row in document["windows"]]


def _shown(name: str, value: Cell) -> Cell:
    if isinstance(value, float):
        return rounded_up(value) if name in {"eps_local", "eps_central"} else as_plain(value)
    return value.split("T")[0] if name == "stops_on" and isinstance(value, str) else value


def rounded_up(epsilon: float) -> str:
    """To five significant digits, never below what was computed; without an exponent."""
    return f"{Context(prec=5, rounding=ROUND_CEILING).create_decimal(repr(epsilon)):f}"


# --- all devices ------------------------------------------------------------------------------------


def all_devices(spendings: Iterable[DeviceSpending], *, is_pure: bool) -> dict[str, Any]:
    """`{devices: [...]}`, one object per device, and what the figures hold for (`composition`)."""
    return {
        "devices": [
            {
                "device": spending.device_id,
                "reports": spending.lifetime.reports,
                "resent_reports": spending.resent_reports,
                "epsilon_local": {
                    window: micro_as_number(amount.micro_epsilon) for window, amount in _amounts(spending)
                },
            }
            for spending in spendings
        ],
        **composition(is_pure=is_pure),
    }


Like = tuple[DeviceHistory, FleetFigures]
"""A device in a window, and the figures of its history."""


def with_every_figure(
    document: Mapping[str, Any],
    windows: Mapping[str, Sequence[Like]],
    allowances: Mapping[str, Allowance],
    delta: float,
    *,
    is_pure: bool,
) -> dict[str, Any]:
    """A document of `all_devices` with each one's windows, as `with_figures` gives them to one.

    allowances: by device. Figures of a rounded history bound those of the devices that have it. is_pure: as for
    `composition`; where it is false, plain sums bound nothing at this delta.
    """
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for window, likes in windows.items():
        for mine, figured in likes:
            left = allowances[mine.device_id]
            rows[mine.device_id].append(_like_row(window, mine, figured, left, delta, is_pure=is_pure))
    devices = [{**device, "windows": rows[device["device"]]} for device in document["devices"]]
    return {**document, "devices": devices, "conditions": CONDITIONS, "accountant": ACCOUNTANT}


def _like_row(
    window: str, mine: DeviceHistory, figured: FleetFigures, left: Allowance, delta: float, *, is_pure: bool
) -> dict[str, Any]:
    pure = micro_as_number(mine.micro_epsilon)
    local = min(figured.eps_local, mine.micro_epsilon / MICRO) if is_pure else figured.eps_local
    return {
        "window": window,
        "reports": mine.reports,
        "epsilon_local": pure,
        "micro_epsilon": mine.micro_epsilon,
        "failed_but_spent": 0,  # what is booked here is in a sum
        "eps_local_pure": pure,
        "eps_local": local,
        "method": figured.method,
        "eps_central": min(figured.eps_central, local) if is_pure else figured.eps_central,
        "n_h": figured.n_h or 1,
        "n_min": mine.least,
        **_allowance_row(left),
        "central_method": figured.central_method,
        "eps_delta": delta,
    }


def all_rows(document: Mapping[str, Any]) -> list[list[Cell]]:
    """Such a document as one row per device and window, in ALL_COLUMNS."""
    return [
        [*row, device["resent_reports"], *(as_plain(device["epsilon_local"][window]) for window in ALL_WINDOWS)]
        for device in document["devices"]
        for row in device_rows(device)
    ]


def all_table_rows(document: Mapping[str, Any]) -> list[list[Cell]]:
    """The same for the eye, in ALL_TABLE_COLUMNS."""
    return [
        [device["device"], *(_shown(name, row[name]) for name in ALL_TABLE_COLUMNS[1:])]
        for device in document["devices"]
        for row in device["windows"]
    ]


def _amounts(spending: DeviceSpending) -> list[tuple[str, Amount]]:
    windows: Mapping[str, Amount] = spending.windows
    return [*windows.items(), (LIFETIME, spending.lifetime)]


def as_plain(epsilon: float | None) -> Decimal | None:
    """A document's amount as a number cell: prints as a plain decimal, never with an exponent."""
    return None if epsilon is None else Decimal(format_micro(round(Decimal(str(epsilon)) * MICRO)))
