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
from reverie.log.wandb import WandbConfig

SCHEMA_VERSION = 7


class ForesightConfig(Config):
    """A look into world models at every evaluation: how well they foresee episodes that they never learn from."""

    enabled: bool = True
    """Whether there is one; algorithms without a world model have none anyway."""
    context: int = Field(5, ge=1)
    """Rows that the model is shown before its first dream."""
    steps: int = Field(15, ge=1)
    """How far each dream goes, with the actions that were really done."""
    dreams: int = Field(12, ge=1)
    """Dreams per env, one after the other: each begins where the one before ended, from what was really seen."""

    @property
    def rows(self) -> int:
        """Rows that are played in each env."""
        return self.context + self.dreams * self.steps


class EvaluateConfig(Config):
    """How evaluations are played; how often and how many is said in the phases."""

    num_envs: int = Field(5, ge=1)
    """Envs side by side. Part of the config because another number gives other bits."""
    sample: bool = False
    """Draw actions as in collection instead of taking the policy's best. eval, play and record do so, too."""
    warmup_steps: int = Field(0, ge=0)
    """No evaluation before this many env steps, in phases that collect."""
    final_episodes: int = Field(20, ge=0)
    """Episodes of the evaluation at the end of the run; 0 leaves it out."""
    foresight: ForesightConfig = ForesightConfig()
    """The look into world models; its episodes are played in ``num_envs`` envs."""


class BackendConfig(Config):
    """Where and how the run computes. Each setting changes the bits of results, so all are written into config.yaml."""

    device: str = "auto"
    """cpu, cuda, cuda:1 or mps. auto takes a GPU if there is one."""
    threads: int = Field(1, ge=1)
    """CPU threads for torch and BLAS."""
    engine: Literal["auto", "numpy", "torch"] = "auto"
    """What fully connected networks run on: numpy, which is several times faster for small ones on a CPU, or torch.
    Other networks always use torch, and so do all networks if there are several ``microbatches``. auto takes numpy on a
    CPU."""
    microbatches: int = Field(1, ge=1)
    """Microbatches into which PPO, DQN, SAC, REINFORCE and Dreamer split every batch. Their gradients are added up.
    More microbatches need less memory. A run that runs out of memory doubles them."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """What Dreamer's networks compute in. Weights, losses and samples stay float32. auto takes bfloat16 on CUDA devices
    that have it, and float32 elsewhere. The other algorithms compute in float32."""
    matmul: Literal["auto", "torch", "onednn"] = "auto"
    """Library for torch's big matmuls on a CPU, in fully connected layers and in Dreamer: torch's own, or oneDNN, which
    is twice as fast on AMD's processors from Zen 5 on. auto takes oneDNN there. The numpy engine uses numpy's BLAS."""
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
    wandb: WandbConfig | None = None
    """Also send everything to Weights & Biases (needs the extra wandb), e.g. log.wandb.project=pendulum."""
    loggers: tuple[Annotated[ComponentConfig, Component("logger")], ...] = ()
    """More sinks by their kind, such as a class of your own."""
    rules: dict[str, MetricRule] = Field(default_factory=dict)
    """How metrics are shown, by patterns of their names; added after the shipped rules."""
    show: tuple[str, ...] = ()
    """Which metrics the live table shows, by patterns such as collect/*; all if there is none."""
    report: bool = True
    """Write report.html and report.md into the run folder when the run ends."""

    def all_loggers(self) -> list[ComponentConfig]:
        """The sinks that are switched on, the short forms first."""
        short = [ComponentConfig(kind=kind) for kind in ("csv", "tensorboard") if getattr(self, kind)]
        return [*short, *([self.wandb] if self.wandb else []), *self.loggers]


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
    """How many of the newest checkpoints stay."""
    keep_every_steps: int = Field(0, ge=0)
    """Also keep one checkpoint per this many env steps; 0 keeps none."""


class PreflightConfig(Config):
    """The look at the run and the machine before the first step. None of this changes a result."""

    enabled: bool = True
    """Whether there is one."""
    probe: bool = True
    """Whether a throw-away copy of the run is tried for about a second, to tell its speed."""


class VideoConfig(Config):
    """Videos of the best and the last policy. None of this changes a result."""

    enabled: Literal["auto"] | bool = "auto"
    """auto: if the extra video is installed and the env draws pictures."""
    every_evaluations: int = Field(0, ge=0)
    """Evaluations between two videos while the run trains; 0 makes them only at its end."""
    max_frames: int = Field(1000, ge=1)
    """Frames after which a video ends, even if its episode goes on."""
    fps: float | None = Field(None, gt=0)
    """Env steps per second; empty takes the env's own speed, and leaves out frames above 30 per second."""


class RunConfig(Config):
    """A whole run."""

    schema_version: int = SCHEMA_VERSION
    """Version of this layout; older files are migrated when read."""
    seed: int = Field(0, ge=0)
    """Every random draw of the run follows from it."""
    env: EnvConfig
    """The environment."""
    algorithm: Annotated[ComponentConfig, Component("algorithm")]
    """The agent and how it learns."""
    normaliser: NormaliserConfig = NormaliserConfig()
    """Scaling of observations and rewards."""
    buffers: dict[str, Annotated[ComponentConfig, Component("buffer")]] = Field(default_factory=dict)
    """Where rows are kept, by name; phases refer to these names, 'main' unless they say otherwise."""
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
    """The look at the run before it starts."""
    monitor: MonitorConfig = MonitorConfig()
    """What the run is watched for."""
    debug: bool = False
    """Look closely: one env in this process, anomaly detection, statistics of layers, a profile. Bits may differ."""
    video: VideoConfig = VideoConfig()
    """Videos of the best and the last policy."""
    horizon_steps: int = Field(0, ge=0)
    """Env steps over which schedules run, fixed when the run is created; 0 takes the budget of the phases."""
    early_stop: Literal["off", "solved"] = "off"
    """solved: the run ends when an evaluation reaches env.spec.solved_at."""
