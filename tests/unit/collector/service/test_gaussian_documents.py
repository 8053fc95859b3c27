"""What documents say of plain sums where a plan has Gaussian noise: never delta 0. On both engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from client_sdk.plan import parse_plan
from collector.reports.privacy import with_figures
from collector.service.documents import (
    Assumed,
    all_devices_document,
    device_document,
    exact_fleet_document,
    fleet_document,
    own_document,
)
from collector.service.storage import CollectorStore
from tests.unit.collector.service.stores import NOW, device, make_plan, make_release, plan_text

VECTOR = '[metrics.v]\nkind = "vector"\ndimension = 3\nclip = 1\nnorm = "l2"\nepsilon = 2\ndelta = 1e-6\n'
PURE, GAUSSIAN = make_plan(), parse_plan(plan_text(2) + VECTOR)


@pytest.fixture
def store(store_url: str) -> Iterator[CollectorStore]:
    """Devices 0 and 1 have reported under a pure plan, 2 and 3 under one with Gaussian noise, which came later."""
    opened = CollectorStore.open(store_url)
    opened.put_plan(PURE, NOW)
    opened.store_release(make_release(PURE, "pure", range(2)))
    assert {document["delta"] for document in everything(opened)} == {0}
    opened.put_plan(GAUSSIAN, NOW)
    opened.store_release(make_release(GAUSSIAN, "gaussian", range(2, 4)))
    yield opened
    opened.close()


def everything(store: CollectorStore) -> list[dict[str, object]]:
    return [
        dict(fleet_document(store, NOW)),
        dict(exact_fleet_document(store, NOW, ["lifetime"], Assumed())),
        dict(all_devices_document(store, NOW)),
        dict(all_devices_document(store, NOW, ["24h", "lifetime"])),
    ]


def test_of_a_fleet_no_delta_holds_for_all(store: CollectorStore) -> None:
    for document in everything(store):
        assert (document["composition"], document["delta"]) == ("basic", None)


def test_of_one_device_it_is_its_own_plans_that_count(store: CollectorStore) -> None:
    nobody = own_document(store, device(7), NOW)
    deltas = {number: device_document(store, device(number), NOW)["delta"] for number in (0, 2)}
    assert (nobody["delta"], deltas) == (0, {0: 0, 2: None})
    figured = with_figures(device_document(store, device(2), NOW), ["lifetime"], 1e-6, None)
    assert figured["delta"] == pytest.approx(1e-6)
