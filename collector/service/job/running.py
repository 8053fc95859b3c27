"""One run of a job: find out what is due, write it, window by window, and hand out the newest gauges.

Rules of this file: a window's outputs are written first and its manifest last, each of them whole; what ended in
between is done again by the next run, to the same bytes, for nothing of the moment goes into a file. Only the manifests
say what has been done. A window whose output cannot be written has no new manifest and does not keep the others from
theirs. Nothing is ever deleted but what an interrupted run was about to write.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import chain
from pathlib import Path

from client_sdk.errors import ConfigurationError, TelemetryError
from client_sdk.plan import Plan
from collector.reports.due import Due, Held, Round, due_of, every_held, late_from_of, late_of
from collector.reports.manifest import NAME, Output, WindowManifest
from collector.reports.windows import MOST_WINDOWS, Window, calendar_windows
from collector.service.job import files
from collector.service.job.config import JobConfig
from collector.service.job.outputs import GAUGES, WindowFiles, check_extras, files_of
from collector.service.job.progress import Lines, Progress
from collector.service.job.source import Snapshot, Source, WindowReading, opened
from collector.service.job.telemetry import send
from collector.service.logs import fields
from collector.service.on_disk import make_folder, sync
from collector.service.parquet_tables import ExportError
from collector.service.report_answers import LocalAnswers
from collector.service.report_windows import Question
from collector.service.versions import installed_version

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Outcome:
    """windows: that have closed. written: of which a report was written; noted: of which a manifest alone.

    late: reports that came too late, over all windows. not_covered: windows that the export holds in part. failed: one
    line for each output that could not be written.
    """

    windows: int = 0
    written: int = 0
    noted: int = 0
    late: int = 0
    not_covered: int = 0
    failed: list[str] = field(default_factory=list)


def run_job(config: JobConfig, now: int, wait_s: float = 0.0, progress: Progress | None = None) -> Outcome:
    """now: seconds since the epoch. Raises HeldLockError, and what keeps the job from reading its source."""
    check_extras(config)
    with files.alone(config.out, wait_s), opened(config, now) as source:
        return _Run(config, source, progress or Lines()).all()


class _Run:
    def __init__(self, config: JobConfig, source: Source, progress: Progress) -> None:
        self._config = config
        self._source = source
        self._progress = progress
        self._wanted = files_of(config)
        self._outcome = Outcome()
        if "privacy" in config.outputs and not source.has_devices():
            what = "says nothing of devices, or not of all periods; export all of it, or leave privacy out of outputs"
            raise ExportError(config.parquet or Path(), what)

    def all(self) -> Outcome:
        due = self._due()
        self._progress.begin(len(due))
        if rendered := [one.held.window for one in due if one.outputs]:
            self._warn_of_short_grace()
            with self._source.snapshot(rendered[0].since, rendered[-1].until) as snapshot:
                self._each(due, snapshot)
        else:
            self._each(due, None)
        self._hand_out()
        return self._outcome

    # --- what is due --------------------------------------------------------------------------------

    def _due(self) -> list[Due]:
        manifests = self._manifests()
        held = self._source.look(lambda rounds: self._held(rounds, manifests))
        found = []
        for one in held:
            folder, manifest = self._folder(one.window), manifests.get(one.window.label)
            present = files.present(folder, manifest) if manifest is not None else ()
            late = late_of(one, manifest)
            self._outcome.late += late["reports"]
            due = due_of(one, manifest, self._source.as_of, self._config.grace_s, self._wanted, present)
            if due is not None:
                found.append(due)
        return found

    def _manifests(self) -> dict[str, WindowManifest]:
        """By window. Raises ConfigurationError for a folder of another zone's windows, or one that was moved."""
        found: dict[str, WindowManifest] = {}
        for folder in files.folders_of(self._config.out, self._config.by):
            if (manifest := files.read_manifest(folder)) is None:
                continue
            if folder.name != f"{manifest.by}={manifest.window}":
                raise ConfigurationError(f"{folder}: its {NAME} is of {manifest.by}={manifest.window}; move it away")
            if manifest.zone != self._config.zone.name:
                raise ConfigurationError(
                    f"out {self._config.out}: holds windows of zone {manifest.zone!r}, and zone is "
                    f"{self._config.zone.name!r}; name another folder"
                )
            found[manifest.window] = manifest
        return found

    def _held(self, rounds: Iterator[Round], manifests: Mapping[str, WindowManifest]) -> list[Held]:
        """Of the windows that have closed, from that of the first sum on."""
        first = next(rounds, None)
        if first is None:
            return []
        windows = [one for one in self._windows(first.period_start) if self._is_asked(one)]
        self._outcome.windows = len(windows)

        def late_from(window: Window) -> int:
            return late_from_of(window, manifests.get(window.label), self._config.grace_s)

        return list(every_held(windows, chain((first,), rounds), late_from))

    def _windows(self, first: int) -> list[Window]:
        config = self._config
        begin = first if config.since is None else max(first, config.since)
        try:
            every = calendar_windows(config.by, config.zone.rules, begin, self._source.as_of)
        except ConfigurationError:
            raise ConfigurationError(
                f"since: more than {MOST_WINDOWS:,} windows; name a later one, or take longer ones"
            ) from None
        return [one for one in every if one.until <= self._source.as_of]

    def _is_asked(self, window: Window) -> bool:
        if self._source.covers(window):
            return True
        self._outcome.not_covered += 1
        return False

    def _warn_of_short_grace(self) -> None:
        """A report may come as long after its period as its plan says."""
        for plan in self._source.plans():
            if plan.max_delay_s > self._config.grace_s:
                log.warning(
                    "plan %s version %d takes reports until %s after their period, grace is %s: what comes later "
                    "is counted, not added", plan.name, plan.version, timedelta(seconds=plan.max_delay_s),
                    timedelta(seconds=self._config.grace_s),
                    extra=fields("job_short_grace", plan=plan.name, version=plan.version),
                )  # fmt: skip

    # --- writing ------------------------------------------------------------------------------------

    def _each(self, due: Sequence[Due], snapshot: Snapshot | None) -> None:
        for one in due:
            label = one.held.window.label
            try:
                if one.missing:
                    raise ConfigurationError(f"{one.why}; its report stays as it is")
                self._window(one, snapshot)
            except OSError as error:
                self._fail(label, f"{error.filename or 'failed'}: {error.strerror or type(error).__name__}")
            except ConfigurationError as error:
                self._fail(label, str(error))
            else:
                self._progress.done(label, one.why)

    def _fail(self, label: str, what: str) -> None:
        line = what if label == "latest" else f"{self._config.by}={label}: {what}"
        self._outcome.failed.append(line)
        log.error("%s", line, extra=fields("job_failed", window=label))

    def _window(self, due: Due, snapshot: Snapshot | None) -> None:
        window, folder = due.held.window, self._folder(due.held.window)
        before = files.read_manifest(folder)
        if due.outputs and snapshot is not None:
            make_folder(folder)
            files.sweep(folder)
            manifest = self._rendered(due, snapshot, folder, before)
            self._outcome.written += 1
        elif before is not None:
            manifest = self._noted(due, before)
            self._outcome.noted += 1
        else:
            return
        if manifest.is_final and manifest.late["reports"] and (before is None or before.late != manifest.late):
            log.warning(
                "%s: %d reports of %d rounds came after its grace and are not in it", window.label,
                manifest.late["reports"], manifest.late["rounds"],
                extra=fields("job_late", window=window.label, **manifest.late),
            )  # fmt: skip
        sync(folder)  # the outputs' names, before anything says that they are there
        files.write(folder / NAME, manifest.to_json().encode())
        sync(folder)

    def _rendered(self, due: Due, snapshot: Snapshot, folder: Path, before: WindowManifest | None) -> WindowManifest:
        config, window = self._config, due.held.window
        plans, reduced, held = snapshot.read(window, due.late_from)
        if before is not None and before.is_final and held.digest != before.digest:
            raise ConfigurationError("the source has changed meanwhile; a final report stays as it is")
        question = Question(None, window.since, window.until, config.false_devices)
        made = WindowFiles(LocalAnswers(WindowReading(plans, reduced, snapshot), question), window, config.zone)
        kept = dict(before.outputs) if before is not None else {}
        outputs = (
            self._wanted if held.digest != due.held.digest else due.outputs
        )  # more has come since it was found due
        for name in outputs:
            data = made.make(name)
            files.write(folder / name, data)
            kept[name] = files.output_of(data)
        # of what an earlier configuration had written, only what is of these sums
        same = before is not None and before.digest == held.digest
        return self._manifest(
            due, held, before, plans, sum(head.rounds for head in reduced.heads),
            {name: one for name, one in kept.items() if same or name in outputs},
        )  # fmt: skip

    def _manifest(
        self,
        due: Due,
        held: Held,
        before: WindowManifest | None,
        plans: Sequence[Plan],
        rows_read: int,
        outputs: Mapping[str, Output],
    ) -> WindowManifest:
        config, window = self._config, held.window
        known = sorted((p for p in plans if p.hash.hex() in held.plans), key=lambda p: (p.name, p.version))
        return WindowManifest(
            by=config.by,
            zone=config.zone.name,
            window=window.label,
            since=window.since,
            until=window.until,
            is_final=due.is_final,
            late_from=due.late_from,
            digest=held.digest,
            rounds=held.rounds,
            reports=held.reports,
            rows_read=rows_read,
            late=late_of(held, before),
            plans=[{"name": p.name, "version": p.version, "hash": p.hash.hex()} for p in known],
            source=self._source.identity,
            software=installed_version(),
            outputs=outputs,
        )

    def _noted(self, due: Due, before: WindowManifest) -> WindowManifest:
        """The same report; what is known of it has changed."""
        late = late_of(due.held, before)
        return replace(before, is_final=due.is_final, late_from=due.late_from, late=late)

    def _folder(self, window: Window) -> Path:
        return self._config.out / f"{self._config.by}={window.label}"

    # --- gauges -------------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        """Of the newest window that holds a sum, or of the newest."""
        text = self._newest_gauges()
        if text is None:
            return
        config = self._config
        if "prometheus" in config.outputs:
            try:
                files.write(config.latest, text)
                sync(config.latest.parent)
            except OSError as error:
                self._fail("latest", f"{config.latest}: cannot be written ({error.strerror})")
        if config.otlp_endpoint is not None and "otlp" in config.outputs:
            try:
                send(text, config.otlp_endpoint)
            except TelemetryError as error:
                self._fail("latest", str(error))

    def _newest_gauges(self) -> bytes | None:
        if GAUGES not in self._wanted:
            return None
        there = [
            (one.rounds > 0, one.until, path)
            for one in self._manifests().values()
            if GAUGES in files.present((path := self._config.out / f"{one.by}={one.window}"), one)
        ]
        return (max(there)[2] / GAUGES).read_bytes() if there else None
