"""The config of a replay buffer, and what it decides before the buffer exists: chunk sizes, memory, disk space."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from reverie.core import registry
from reverie.core.config import Component, ComponentConfig
from reverie.core.types import NOTE
from reverie.data.annotations import AnnotationColumns
from reverie.data.derived_columns import EpisodeFlags, EpisodeSteps
from reverie.data.file_columns import WIDE_BYTES
from reverie.data.frame_stacks import single_frames
from reverie.data.hindsight import HindsightConfig
from reverie.data.memory_forecast import ExpectedRows, Forecast
from reverie.data.rows import POLICY_VERSION, row_bytes
from reverie.data.sampler import UniformSampler

_MIN_CHUNKS = 8
_CHUNK_COPIES = 3
"""Copies of a chunk of wide columns in memory at the peak: the growing chunk, and a chunk that a resume reads, as bytes
and as arrays. Saving needs fewer: one copy of the growing chunk."""


class ReplayConfig(ComponentConfig):
    """What a replay buffer stores, and how it samples."""

    kind: str = "replay"
    """Keeps the newest rows and samples them again and again."""
    capacity: int = Field(1_000_000, ge=1)
    """Minimum number of rows, over all envs, that a full buffer holds. It may hold up to one chunk more."""
    chunk_rows: int = Field(8192, ge=1)
    """Rows over all envs per chunk. Chunks are dropped, and written to checkpoints, as a whole. At most an eighth of
    capacity."""
    storage: Literal["auto", "memory", "disk"] = "auto"
    """memory: all columns in memory. disk: wide columns in files of the run folder. Samples are the same. auto chooses
    memory if the buffer needs less than half of the free memory; decided when a run is created."""
    annotation_dtype: Literal["float16", "float32"] = "float32"
    """Type of stored float annotations such as latents. float16 halves their memory."""
    min_rows: int = Field(1, ge=1)
    """Number of rows over all envs below which nothing is sampled."""
    sampler: Annotated[ComponentConfig, Component("sampler")] = UniformSampler.Config()
    """How samples are drawn: uniform, prioritised, recency, online, shuffled or a mixture."""
    stacked_frames: int | None = Field(None, ge=1, le=EpisodeSteps.LARGEST + 1)
    """Number of frames in each stacked observation; each frame is then stored once. Empty: that of the frame_stack
    wrapper, if no later wrapper changes observations; decided when a run is created."""

    hindsight: HindsightConfig | None = None
    """Replaces the goals of sampled transitions by goals that were reached, in envs with goals: strategy and ratio.
    Empty: goals stay."""
    policy_version: bool = False
    """Also store policy_version with each row: the number of updates of the weights that chose its action. -1 for rows
    of a source."""
    source: str | None = None
    """Dataset that fills the buffer before training: a folder, or minari:NAME."""
    holdout: float = Field(0.0, ge=0, lt=1)
    """Fraction of the source's episodes that are held out from training, for the hook validate."""

    @model_validator(mode="after")
    def _check_min_rows(self) -> ReplayConfig:
        if self.min_rows > self.capacity:
            raise ValueError(
                f"min_rows ({self.min_rows:,}) must not be above capacity ({self.capacity:,}): nothing could be sampled"
            )
        return self

    @model_validator(mode="after")
    def _check_hindsight(self) -> ReplayConfig:
        if self.hindsight is not None and self.frames > 1:
            raise ValueError("hindsight needs whole observations: set stacked_frames to 1, or remove the stacks")
        return self

    @property
    def frames(self) -> int:
        """Frames per stack, 1 if observations are not stacked."""
        return self.stacked_frames or 1

    @property
    def derived_bytes(self) -> int:
        """Memory per row of the derived columns."""
        return EpisodeFlags.ROW_BYTES + (EpisodeSteps.ROW_BYTES if self.frames > 1 else 0)

    def chunks(self, num_envs: int) -> tuple[int, int]:
        """Vector steps per chunk, and the number of chunks including the growing one."""
        chunk_steps = max(1, min(self.chunk_rows, self.capacity // _MIN_CHUNKS) // num_envs)
        return chunk_steps, -(-self.capacity // (chunk_steps * num_envs)) + 1


def forecast_replay(config: ReplayConfig, expected: ExpectedRows) -> Forecast:
    """Memory and disk space of a full replay buffer. See :mod:`reverie.data.memory_forecast`."""
    chunk_steps, num_chunks = config.chunks(expected.num_envs)
    chunk_rows = chunk_steps * expected.num_envs
    rows = num_chunks * chunk_rows
    held_out = int(rows * min(1.0, config.holdout / (1 - config.holdout)))  # at most a buffer of the same capacity
    stored = single_frames(expected.specs, config.frames) if config.frames > 1 else expected.specs
    notes = {key: array for key, array in expected.extras.items() if key.startswith(NOTE)}
    extras = {key: array for key, array in expected.extras.items() if key not in notes}
    if config.policy_version:
        extras[POLICY_VERSION] = np.zeros(1, np.int64)
    observed = row_bytes(stored, extras) + np.dtype(bool).itemsize  # valid
    wide = row_bytes(stored, extras, WIDE_BYTES) if config.storage == "disk" else 0
    annotated = AnnotationColumns.bytes_of({**expected.annotations, **notes}, config.annotation_dtype)
    sampler = registry.load("sampler", config.sampler.kind).row_bytes(config.sampler)
    growing = chunk_rows * (2 if held_out else 1)
    memory = (rows + held_out) * (observed - wide + config.derived_bytes) + rows * (annotated + sampler)
    memory += _CHUNK_COPIES * growing * wide
    return Forecast(memory, (rows + held_out) * observed if wide else 0, rows * annotated + growing * observed)
