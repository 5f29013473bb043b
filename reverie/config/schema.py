"""RunConfig: everything that decides what a run does. A run folder's config.yaml holds exactly this."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from reverie.config.monitor import MonitorConfig
from reverie.config.phases import Phase
from reverie.core.config import Component, ComponentConfig, Config
from reverie.data.normaliser import NormaliserConfig
from reverie.envs.config import EnvConfig
from reverie.log.metric_styles import MetricRule
from reverie.log.scope import ScopeConfig
from reverie.log.wandb import WandbConfig

SCHEMA_VERSION = 9


class ForesightConfig(Config):
    """Measures at every evaluation how well a world model predicts episodes that it does not learn from."""

    enabled: bool = True
    """Measure it. Has no effect on algorithms without a world model."""
    context: int = Field(5, ge=1)
    """Rows that the model observes before its first open-loop prediction."""
    steps: int = Field(15, ge=1)
    """Length of each open-loop prediction, with the actions that were really taken."""
    dreams: int = Field(12, ge=1)
    """Open-loop predictions per env, one after the other. Each starts from the real row where the last one ended."""

    @property
    def rows(self) -> int:
        """Rows that are played in each env."""
        return self.context + self.dreams * self.steps


class EvaluateConfig(Config):
    """How evaluations are played. Phases set how often, and how many episodes."""

    num_envs: int = Field(5, ge=1)
    """Number of parallel evaluation envs. Changing it changes the results slightly."""
    sample: bool = False
    """Sample actions as in collection instead of taking the best one. Also used by eval, play and record."""
    warmup_steps: int = Field(0, ge=0)
    """No evaluation before this many env steps, in phases that collect."""
    final_episodes: int = Field(20, ge=0)
    """Episodes of the evaluation at the end of the run; 0 skips it."""
    foresight: ForesightConfig = ForesightConfig()
    """Open-loop predictions of world models, on episodes in ``num_envs`` envs."""


class BackendConfig(Config):
    """Where and how the run computes. Each setting changes the bits of results, so all are written into config.yaml."""

    device: str = "auto"
    """cpu, cuda, cuda:1 or mps. auto takes a GPU if there is one."""
    threads: int = Field(1, ge=1)
    """CPU threads for torch and BLAS."""
    engine: Literal["auto", "numpy", "torch"] = "auto"
    """What fully connected networks run on: numpy, which is several times faster for small ones on a CPU, or torch.
    Other networks always use torch, and so do all networks if there are several ``microbatches``. auto takes numpy on a
    CPU, unless a measurement of the run's layers finds torch faster."""
    microbatches: int = Field(1, ge=1)
    """Microbatches into which PPO, DQN, SAC, REINFORCE and Dreamer split every batch. Their gradients are added up.
    More microbatches need less memory. A run that runs out of memory doubles them."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """What Dreamer's networks compute in. Weights, losses and samples stay float32. auto takes bfloat16 on CUDA devices
    that have it, and float32 elsewhere. The other algorithms compute in float32."""
    matmul: Literal["auto", "torch", "onednn"] = "auto"
    """Library for torch's big matmuls on a CPU, in fully connected layers and in Dreamer: torch's own, or oneDNN. auto
    measures both with the sizes of this run."""
    numpy_matmul: Literal["auto", "numpy", "torch", "onednn"] = "auto"
    """Library for the numpy engine's big matmuls: numpy's own BLAS, torch's or oneDNN. auto measures all of them."""
    flush_denormals: bool = True
    """Treat numbers closer to zero than 1.2e-38 (float32) as zero. Without it, updates of networks with dead units
    become several times slower on many processors."""
    deterministic: bool = True
    """Refuse operations whose result depends on timing."""


class LogConfig(Config):
    """What is written while training."""

    every_steps: int = Field(0, ge=0)
    """Env steps between two lines of metrics.jsonl; 0 chooses a two-hundredth of the budget."""
    csv: bool = False
    """Also write metrics.csv, a table for spreadsheets."""
    tensorboard: bool = False
    """Also write TensorBoard curves into the run folder (needs the extra tensorboard)."""
    scope: ScopeConfig = ScopeConfig()
    """Also write columns for the viewer Scope, with log.scope.enabled=true."""
    wandb: WandbConfig | None = None
    """Also send everything to Weights & Biases (needs the extra wandb), e.g. log.wandb.project=pendulum."""
    loggers: tuple[Annotated[ComponentConfig, Component("logger")], ...] = ()
    """More sinks by their kind, such as a class of your own."""
    rules: dict[str, MetricRule] = Field(default_factory=dict)
    """How metrics are shown, by patterns of their names. Applied after the built-in rules."""
    show: tuple[str, ...] = ()
    """Metrics in the live table, by patterns such as collect/*; the default shows all."""
    report: bool = True
    """Write report.html and report.md into the run folder when the run ends."""

    def all_loggers(self) -> list[ComponentConfig]:
        """The sinks that are switched on, the short forms first."""
        short = [ComponentConfig(kind=kind) for kind in ("csv", "tensorboard") if getattr(self, kind)]
        own = [*([self.scope] if self.scope.enabled else []), *([self.wandb] if self.wandb else [])]
        return [*short, *own, *self.loggers]


class CheckpointConfig(Config):
    """When the run is saved and what is kept. None of this changes a result."""

    every_steps: int = Field(0, ge=0)
    """Env steps between two checkpoints; 0 chooses a twentieth of the budget, if there is one in env steps."""
    every_updates: int = Field(0, ge=0)
    """Updates between two checkpoints, for phases without env steps; 0 leaves it out."""
    every_cycles: int = Field(0, ge=0)
    """Cycles between two checkpoints in phases that are counted in cycles, where it replaces the other two; 0 chooses a
    twentieth of the cycles unless one of the others is set."""
    keep_last: int = Field(2, ge=1)
    """How many of the newest checkpoints to keep."""
    keep_every_steps: int = Field(0, ge=0)
    """Also keep one checkpoint per this many env steps; 0 keeps none."""


class PreflightConfig(Config):
    """Checks and forecasts before the first step. None of this changes a result."""

    enabled: bool = True
    """Run the preflight."""
    probe: bool = True
    """Run a throw-away copy for about a second to forecast the speed."""


class VideoConfig(Config):
    """Videos of the best and the last policy. None of this changes a result."""

    enabled: Literal["auto"] | bool = "auto"
    """auto records if the extra video is installed and the env renders frames."""
    every_evaluations: int = Field(0, ge=0)
    """Evaluations between two videos while the run trains; 0 makes them only at its end."""
    max_frames: int = Field(1000, ge=1)
    """Frames after which a video ends, even in the middle of an episode."""
    fps: float | None = Field(None, gt=0)
    """Env steps per second. null takes the env's own speed and drops frames above 30 per second."""


class RunConfig(Config):
    """A whole run."""

    schema_version: int = SCHEMA_VERSION
    """Version of this layout; older files are migrated when read."""
    seed: int = Field(0, ge=0)
    """Seed of all random draws."""
    env: EnvConfig
    """The environment."""
    algorithm: Annotated[ComponentConfig, Component("algorithm")]
    """The agent and how it learns."""
    normaliser: NormaliserConfig = NormaliserConfig()
    """Scaling of observations and rewards."""
    buffers: dict[str, Annotated[ComponentConfig, Component("buffer")]] = Field(default_factory=dict)
    """Where rows are kept, by name. Phases use 'main' unless they name another."""
    phases: tuple[Phase, ...] = Field(min_length=1)
    """The curriculum."""
    evaluate: EvaluateConfig = EvaluateConfig()
    """How evaluations are played."""
    backend: BackendConfig = BackendConfig()
    """Device, threads, determinism."""
    log: LogConfig = LogConfig()
    """What is written while training."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """When the run is saved."""
    preflight: PreflightConfig = PreflightConfig()
    """Checks and forecasts before the run starts."""
    monitor: MonitorConfig = MonitorConfig()
    """Bounds that raise an alert when a metric crosses them."""
    debug: bool = False
    """Debug mode: one env in this process, anomaly detection, layer statistics, a profile. Bits may differ."""
    video: VideoConfig = VideoConfig()
    """Videos of the best and the last policy."""
    horizon_steps: int = Field(0, ge=0)
    """Env steps over which schedules run, fixed when the run is created; 0 takes the budget of the phases."""
    early_stop: Literal["off", "solved"] = "off"
    """solved: the run ends when an evaluation reaches env.spec.solved_at."""
