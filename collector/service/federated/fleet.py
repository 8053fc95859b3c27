"""The devices: each trains on what it holds, and reports through the SDK as an app would, one round after another.

`Device.report` is the app's half of federated averaging, all of it: the SDK offers metrics of kind `vector`, the app
fetches a model (here: a small file beside the demo's other ones; in the field whatever it fetches its settings by),
trains, divides by C, and records two vectors. The clipping is the SDK's: the plan's, whatever the app hands over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from client_sdk import TelemetryClient
from client_sdk.plan import Plan
from collector.federated.averaging import State
from collector.federated.clipping import fit_bit
from collector.service.demo.run import SEALING_THREADS, Addresses, cohort_batches
from collector.service.federated.data import Examples, trained_update
from collector.service.federated.lines import Line

DAY_S: Final = 86_400

Progress = Callable[[str], None]
Floats = NDArray[np.float64]


class Clock:
    """The devices' own: a round is a day, and the days lie behind us, so that the last one is today."""

    def __init__(self, first: float) -> None:
        self.now = first

    def __call__(self) -> float:
        """Seconds since the epoch."""
        return self.now


@dataclass(frozen=True, slots=True)
class Sent:
    """What a device's report held of one line before any noise: the demo shows totals of these only.

    scaled: the update over C, clipped to 1 as the SDK clips it; bit: +1/2 or -1/2.
    """

    scaled: Floats = field(repr=False)
    bit: float = field(repr=False)


class Device:
    """One simulated phone with its data, and its client."""

    def __init__(self, client: TelemetryClient, examples: Examples, models: Path) -> None:
        self.client = client
        self._examples = examples
        self._models = models

    def report(self, lines: Sequence[Line]) -> dict[str, Sent]:
        """Fetch, train, record, seal. By line: what it told."""
        sent = {line.name: self._record(line) for line in lines}
        self.client.flush(seal=True)
        return sent

    def _record(self, line: Line) -> Sent:
        state = State.from_json(model_path(self._models, line).read_text(encoding="utf-8"))
        update = trained_update(self._examples, np.array(state.model))
        length = float(np.linalg.norm(update, ord=line.order))
        scaled, bit = update / state.clip, fit_bit(length, state.clip)
        self.client.record(line.task.update, scaled)
        self.client.record(line.task.fitted, bit)
        return Sent(scaled / max(1.0, length / state.clip), *bit)


def model_path(folder: Path, line: Line) -> Path:
    """Where devices fetch a line's model and C."""
    return folder / f"model-{line.name}.json"


class Fleet:
    """All devices on one asyncio loop. Made once, used round after round, closed at the end."""

    def __init__(self, plan: Plan, progress: Progress) -> None:
        self._plan = plan
        self._progress = progress
        self.devices: list[Device] = []

    def add(
        self, held: Examples, token: str, addresses: Addresses, plan_path: Path, folder: Path, clock: Clock
    ) -> None:
        """One device more. folder: where the models are, and its own data go."""
        client = TelemetryClient(
            addresses.collector,
            plan=plan_path,
            data_dir=folder / "devices" / str(len(self.devices)),
            enrolment_token=token,
            registrar=addresses.registrar,
            registrar_key=addresses.registrar_key,
            consent=True,
            insecure=True,
            background=False,
            clock=clock,
        )
        self.devices.append(Device(client, held, folder))

    async def round(self, lines: Sequence[Line]) -> list[dict[str, Sent]]:
        """Every device reports on the models of this round and uploads. By device what it told."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(SEALING_THREADS, "federated-seal") as threads:
            sealing = [loop.run_in_executor(threads, self._report, device, lines) for device in self.devices]
            sent = await asyncio.gather(*sealing)
        # one loop does the work of a whole cohort's phones: cohort after cohort, or their deadlines would pass
        for batch in cohort_batches(len(self.devices), self._plan.cohort.target_size):
            await asyncio.gather(*(self._upload(self.devices[number]) for number in batch))
        return sent

    def _report(self, device: Device, lines: Sequence[Line]) -> dict[str, Sent]:
        sent = device.report(lines)
        self._progress("seal")
        return sent

    async def _upload(self, device: Device) -> None:
        await device.client.upload(before_send=self._progress)

    def device_ids(self) -> list[str]:
        """As the collector knows them; known once a device has enrolled."""
        return [device.client.device_id or "" for device in self.devices]

    def spent_micro(self) -> Mapping[str, int]:
        """By device id: what its own ledger says that it has spent."""
        return {device.client.device_id or "": device.client.spent().lifetime_micro for device in self.devices}

    def close(self) -> None:
        """Every client; idempotent. Whoever goes without would find clients that seal into a folder that is gone."""
        for device in self.devices:
            device.client.close()
