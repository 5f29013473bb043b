"""Settings of the monitor: which bounds a run is watched for."""

from __future__ import annotations

from pydantic import Field, field_validator

from reverie.core.config import Config


class MonitorConfig(Config):
    """What the run is watched for. Each rule is named by its bound; null turns it off. No result depends on it."""

    enabled: bool = True
    """Whether the run is watched at all."""
    patience: int = Field(5, ge=1)
    """Lines of metrics in a row that must be past a bound before an alert; a run writes about 200."""
    kl: float | None = Field(0.2, gt=0)
    """Highest distance between the policies before and after an update."""
    clip_fraction: float | None = Field(0.6, gt=0, le=1)
    """Highest share of probability ratios that are cut."""
    explained_variance: float | None = Field(-1.0, lt=1)
    """Lowest explained variance of the value function, for four times the patience."""
    gradient_growth: float | None = Field(100.0, gt=1)
    """Highest gradient norm, as a multiple of what was usual before."""
    gradient_low: float | None = Field(1e-8, gt=0)
    """Lowest gradient norm: below it nothing is learnt."""
    encoder_share: float | None = Field(1e-3, gt=0)
    """Lowest gradient norm of a world model's encoder, as a share of its decoder's: below it nothing seen is learnt."""
    entropy: float | None = Field(0.01, gt=0, lt=1)
    """Lowest entropy in the first half of the run: as a share of the highest possible, or, for continuous actions, as
    the deviation of an action."""
    no_progress: float | None = Field(0.5, gt=0, le=1)
    """Longest share of the run's budget without a better evaluation."""
    memory: float | None = Field(0.9, gt=0, le=1)
    """Highest share of the machine's memory that the process may hold."""
    slow_env: float | None = Field(0.8, gt=0, le=1)
    """Highest share of the time that may pass in env steps."""
    webhook: str | None = None
    """Where alerts are posted as JSON: an http(s) URL, or env:REVERIE_... to read it from an environment variable."""

    @field_validator("webhook")
    @classmethod
    def _web_address(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://", "env:")):
            raise ValueError("must be an http(s) URL, or env:NAME")
        return value
