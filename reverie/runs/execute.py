"""Executes a run that has a folder: builds the session, continues from a checkpoint, saves, cleans up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial

from reverie.build import NewAlgorithm, build
from reverie.config.files import config_to_tree
from reverie.config.hook_checks import has_hook, has_update
from reverie.config.phases import flatten_phases
from reverie.config.pipeline import Prepared
from reverie.config.resolve import budget_of, exceeds_budget, steps_text
from reverie.config.secrets import hide_in_tree
from reverie.core.errors import ConfigError, ReverieError, RunError, TooFewRowsError
from reverie.envs.action_repeat import action_repeat
from reverie.envs.snapshot_cache import SnapshotVerdict
from reverie.log.console import Console
from reverie.log.loggers import RunInfo, make_loggers
from reverie.log.metric_styles import Rules
from reverie.log.progress import progress, quiet_progress, shown_in
from reverie.log.sinks import JsonlSink, truncate_logs
from reverie.log.webhook import make_webhook
from reverie.machine.memory import is_debugged
from reverie.preflight.summary import examine_session, report_lines
from reverie.report import write as reports
from reverie.runs.assemble import Assembly, assemble, build_first
from reverie.runs.checkpointer import Checkpointer
from reverie.runs.foresight_files import Foresight
from reverie.runs.logged_media import LoggedMedia
from reverie.runs.resume_command import resume_command, twice_the_budget
from reverie.runs.videos import Videos
from reverie.store.checkpoint import Checkpoint
from reverie.store.files import explain_write_errors
from reverie.store.run_folder import RunFolder
from reverie.store.trees import write_tree
from reverie.training.evaluator import EvaluationStopped
from reverie.training.failures import NotFiniteError
from reverie.training.interrupt import StopRequest, catch_signals
from reverie.training.orchestrator import CyclePart, Orchestrator
from reverie.training.session import Session

FAILED_BATCH = "failed_batch"


class Execution:
    """The part of a run that this process trains, until the run is ``finished``, ``stopped`` or ``failed``."""

    def __init__(
        self, prepared: Prepared, folder: RunFolder, quiet: bool = False, built: NewAlgorithm | None = None
    ) -> None:
        self.prepared = prepared
        self.built = built  # handed over to the session
        self.config = config = prepared.config
        self.folder = folder
        self.quiet = quiet
        self.state = "failed"
        self.exit_code = 0
        self.budget = budget_of(config.phases)
        self.before_start: Callable[[], None] = lambda: None
        self.changed: tuple[str, ...] = ()  # settings that differ from the checkpoint to continue from

    @property
    def resume_command(self) -> str:
        return resume_command(self.folder, self.config)

    def start(self, checkpoint: Checkpoint | None = None, notes: tuple[str, ...] = ()) -> None:
        """Train from a checkpoint, or from the beginning. The caller holds the run's lock."""
        with self._explaining(), quiet_progress(self.quiet), ExitStack() as stack:
            request = stack.enter_context(catch_signals())  # first, so that a stop during the start is handled too
            run = self._assemble(stack, checkpoint)
            # From here on the run can continue. A start that is refused earlier must not change the folder.
            self.before_start()
            truncate_logs(self.folder.path, checkpoint.summary["logs"] if checkpoint else {})
            self._add_loggers(run.session)
            self._add_webhook(run.session)
            self._introduce(run.session, (*self._about_snapshots(run.snapshots), *lost_episodes(run.session), *notes))
            orchestrator = run.make_loop(self._make_parts(run, request), request)
            try:
                self._run(orchestrator, run.checkpointer, request)
            except BaseException as error:
                with suppress(OSError, RunError):  # a full disk must not hide the first error
                    self._write_status("failed", run.session)
                if isinstance(error, Exception):  # a second signal means: stop at once
                    self._report(run.checkpointer.logs)
                raise
            self._write_status(self.state, run.session)
            self._report(run.checkpointer.logs)

    def _assemble(self, stack: ExitStack, checkpoint: Checkpoint | None) -> Assembly:
        """The parts of the run, in the state of the checkpoint or at the beginning."""
        rules = Rules(self.config.log.rules, self.config.log.show)
        self.console = Console(self.folder.path, self.budget, self.quiet, rules, action_repeat(self.config.env))
        stack.callback(self.console.close)
        stack.enter_context(shown_in(self.console))
        built, self.built = self.built or build_first(self.prepared, checkpoint is None), None
        run = stack.enter_context(assemble(self.prepared, self.folder, built, [self.console]))
        with progress("reading the checkpoint" if checkpoint else "loading initial weights"):
            run.start_from(checkpoint, self.folder.path, self.changed)
        return run

    def _make_parts(self, run: Assembly, request: StopRequest) -> list[CyclePart]:
        shelf, say = run.checkpointer.shelf, self.console.say
        self.videos = Videos(self.config, self.folder, shelf, say, request, self.quiet)
        self.videos.begin(run.session)
        self.logged_media = LoggedMedia(self.config, self.folder, say)
        foresight = Foresight(run.evaluator, self.folder, say, self.budget)
        foresight.begin(run.session)
        return [run.checkpointer, foresight, self.videos, self.logged_media]

    def _write_status(self, state: str, session: Session) -> None:
        counters = session.counters
        self.folder.write_status(state=state, env_steps=counters.env_steps, updates=counters.updates)

    def _report(self, logs: JsonlSink) -> None:
        """Write the report. A run must not fail because of its report."""
        if not self.config.log.report:
            return
        try:
            logs.sync()
            self.console.say(f"Report: {reports.report_finished(self.folder.path)}")
        except Exception as error:
            with suppress(OSError):
                self.console.say(f"Warning: the report could not be written: {type(error).__name__}: {error}")

    def say_finished(self) -> None:
        """Print that the run is finished, and the command for a longer budget."""
        status = self.folder.status()
        done = status.get("env_steps", 0)
        console = Console(self.folder.path, self.budget, self.quiet)
        amount = self.budget.amount(status.get(self.budget.counter, 0))
        console.say(f"{self.folder.path} is finished, after {amount}.")
        console.say(f"Continue with a longer budget: {self.resume_command} {twice_the_budget(self.config, done)}")
        console.close()
        self.state = "finished"

    def _introduce(self, session: Session, notes: tuple[str, ...]) -> None:
        config, done = self.config, session.counters.progress(self.budget)
        where = f" from {self.budget.position(done)}" if done else ""
        total = f", {steps_text(config.phases)}" if exceeds_budget(config.phases) else ""
        self.console.say(
            f"{self.folder.path}: {config.env.id} with {config.algorithm.kind}, seed {config.seed}{where}{total}"
        )
        for note in notes:
            self.console.say(note)
        self.folder.write_status(state="running", final_score=None)  # an earlier end may have set it
        if config.preflight.enabled and not done:
            is_probed = config.preflight.probe and not self.quiet  # a quiet run shows no forecast, so it measures none
            probe = partial(build, specs=self.prepared.specs) if is_probed else None
            for line in report_lines(examine_session(session, self.folder.path, probe)):
                self.console.say(line)
        if is_debugged() and not config.debug:
            self.console.say("A debugger is attached, but this is not a debug run (debug: false in its config).")
        title = f"{config.env.id} · {config.algorithm.kind} · seed {config.seed}"
        self.console.start(title)

    def _about_snapshots(self, verdict: SnapshotVerdict) -> tuple[str, ...]:
        """Notes for the user if this env cannot be restored exactly. The verdict itself is logged."""
        self.console.note(f"env snapshots: {verdict}")
        if verdict.kind == "exact":
            return ()
        return (f"Resuming will not be exact: {verdict.reason}. A resumed run continues with other episodes.",)

    def _add_webhook(self, session: Session) -> None:
        setting = self.config.monitor.webhook
        sink = make_webhook(setting, self.folder.name, self.console.say) if setting else None
        if sink is not None:
            session.recorder.sinks.append(
                sink
            )  # sinks close in reverse order, so it still gets the alerts of the others

    def _add_loggers(self, session: Session) -> None:
        """Add the sinks of the config. They read the log files, which must be truncated to the checkpoint before."""
        counters, config = session.counters, hide_in_tree(config_to_tree(self.config))
        run = RunInfo(self.folder.path, counters.env_steps, counters.updates, self.budget.counter, config)
        warn = partial(self.console.alert, "warning")
        session.recorder.sinks += make_loggers(self.config.log.all_loggers(), run, warn)

    def _run(self, orchestrator: Orchestrator, checkpointer: Checkpointer, request: StopRequest) -> None:
        session = orchestrator.session
        try:
            with self._explaining():
                self.state = "finished" if orchestrator.run() else "stopped"
        except Exception as error:
            if isinstance(error, NotFiniteError):
                self._keep_batch(error, session)
            with suppress(OSError):  # the log may be on the disk that failed
                self._save_after(error, orchestrator, checkpointer)
            raise
        checkpointer.save()  # before the last line of metrics: a longer budget continues as if the run had not ended
        if self.state == "finished":
            self._finish(orchestrator, checkpointer, request)
        if self.state == "stopped":
            self.exit_code = request.exit_code
            self.console.stop()
            self.console.say(f"Stopped and saved at {self.budget.position(session.counters.progress(self.budget))}.")
            self.console.say(f"Continue with: {self.resume_command}")

    def _finish(self, orchestrator: Orchestrator, checkpointer: Checkpointer, request: StopRequest) -> None:
        """Write the last line of metrics, the last evaluation and the final policy. A stop leaves them to a resume."""
        session = orchestrator.session
        # A short budget may have dropped the phases that learn, so a run that collects counts as meant to learn.
        phases = flatten_phases(self.config.phases)
        is_to_learn = any(has_update(phase) or has_hook(phase, "collect") for phase in phases)
        if is_to_learn and not session.counters.updates:
            text = "Nothing was learnt: the run ended before the first update. If --steps ended it early, give more."
            session.recorder.alert("warning", "no_updates", text)
        session.recorder.flush(orchestrator.machine())
        if self.config.evaluate.final_episodes:
            try:
                summary = orchestrator.evaluate(self.config.evaluate.final_episodes, request)
            except EvaluationStopped:
                self.state = "stopped"
                return
            self.folder.write_status(final_score=summary["return_mean"])
        checkpointer.shelf.save(session, "final")
        self.videos.finish(session)
        self.logged_media.finish(session)
        self.console.stop()
        amount = self.budget.amount(session.counters.progress(self.budget))
        self.console.say(f"Finished after {amount}: {self.folder.path}")
        self.videos.announce()

    def _save_after(self, error: Exception, orchestrator: Orchestrator, checkpointer: Checkpointer) -> None:
        """Save if the session is between two steps. In the middle of a step its state is inconsistent."""
        self.console.stop()
        if orchestrator.is_between_steps:
            try:
                checkpointer.save()
            except ReverieError as second:
                if second.message != str(getattr(error, "message", "")):
                    self.console.say(second.message)
        if isinstance(error, ReverieError):
            self.console.note(f"Failed: {error.message}")  # the caller prints it
        else:
            self.console.say(f"Failed: {type(error).__name__}: {error}")
        # After a ConfigError the same run would fail again.
        if not isinstance(error, ConfigError) and self.resume_command not in getattr(error, "fix", ""):
            is_saved = bool(checkpointer.folder.paths())
            unsaved = "No checkpoint was saved. Start over"
            start = "Nothing before the last checkpoint is lost. Continue" if is_saved else unsaved
            changed = error.resume_with if isinstance(error, TooFewRowsError) else ""
            self.console.say(f"{start} with: {self.resume_command} {changed}".rstrip())

    def _keep_batch(self, error: NotFiniteError, session: Session) -> None:
        """Save the batch of the failed update, name its files in the error, and raise an alert."""
        with suppress(OSError):
            write_tree(self.folder.path / FAILED_BATCH, error.record())
            error.message += f" The batch is in {FAILED_BATCH}.safetensors and {FAILED_BATCH}.json of the run."
        session.recorder.alert("error", "not_finite", f"{error.message} {error.fix}")

    def _explaining(self) -> AbstractContextManager[None]:
        return explain_write_errors(self.folder.path, self.resume_command)


def lost_episodes(session: Session) -> tuple[str, ...]:
    """A note if envs could not be restored to their saved episodes."""
    lost = session.collector.lost_episodes
    if not lost:
        return ()
    envs = "The env" if session.vector.num_envs == 1 else f"{lost} of {session.vector.num_envs} envs"
    cause = "the env ignores its seed, its settings or code have changed, or an episode was too long"
    return (
        f"{envs} could not return to the saved episode. It ends here as truncated, and a new one begins ({cause}).",
    )
