"""No planning: the policy acts alone."""

from __future__ import annotations

from reverie.core.config import ComponentConfig
from reverie.core.specs import ActionSpec


class NoPlanner:
    """Stands for acting with the policy, where an algorithm has one."""

    class Config(ComponentConfig):
        """No planning."""

        kind: str = "none"
        """Act with the policy alone."""

    def __init__(self, config: Config, action: ActionSpec) -> None:
        self.config = config
