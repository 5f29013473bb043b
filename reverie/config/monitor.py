"""Settings of the monitor: the bounds that raise alerts."""

from __future__ import annotations

from pydantic import Field, field_validator

from reverie.core.config import Config


class MonitorConfig(Config):
    """Bounds that raise an alert when a metric crosses them; null turns one off. No result depends on them."""

    enabled: bool = True
    """Check the bounds while the run trains."""
    patience: int = Field(5, ge=1)
    """Consecutive lines of metrics that must cross a bound before an alert. A run writes about 200 lines."""
    kl: float | None = Field(0.2, gt=0)
    """Highest KL divergence between the policies before and after an update."""
    clip_fraction: float | None = Field(0.6, gt=0, le=1)
    """Highest fraction of clipped probability ratios."""
    explained_variance: float | None = Field(-1.0, lt=1)
    """Lowest explained variance of the value function, for four times the patience."""
    gradient_growth: float | None = Field(100.0, gt=1)
    """Highest gradient norm, as a multiple of its usual value so far."""
    gradient_low: float | None = Field(1e-8, gt=0)
    """Lowest gradient norm. Below it, nothing is learned."""
    encoder_share: float | None = Field(1e-3, gt=0)
    """Lowest gradient norm of a world model's encoder, as a fraction of its decoder's."""
    plan_spread: float | None = Field(1e-3, gt=0)
    """Lowest standard deviation of the elites' actions in plans. Below it, all candidates are the same."""
    policy_gain: float | None = Field(-0.5, lt=0)
    """Lowest predicted gain of the policy's sequences over random ones, as a multiple of the gain of plans, for four
    times the patience."""
    entropy: float | None = Field(0.01, gt=0, lt=1)
    """Lowest entropy in the first half of the run: as a fraction of the highest possible, or, for continuous actions,
    as the standard deviation of an action."""
    no_progress: float | None = Field(0.5, gt=0, le=1)
    """Longest fraction of the run's budget without a better evaluation."""
    memory: float | None = Field(0.9, gt=0, le=1)
    """Highest fraction of the machine's memory that the process may hold."""
    slow_env: float | None = Field(0.8, gt=0, le=1)
    """Highest fraction of the time spent in env steps, averaged over at least 10 seconds. Alerts once per run."""
    webhook: str | None = None
    """Where alerts are posted as JSON: an http(s) URL, or env:REVERIE_... to read it from an environment variable."""

    @field_validator("webhook")
    @classmethod
    def _web_address(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://", "env:")):
            raise ValueError("must be an http(s) URL, or env:NAME")
        return value
