"""Which part of a world-model agent is worst, in one sentence, from the newest measurement of its foresight.

The parts build on each other, so the first that fails is named: reconstruction, dynamics, reward, actor. Without a
decoder, imagined latents that drift away from the observed ones stand for the dynamics.
"""

from __future__ import annotations

from reverie.report.foresight_data import Curves, Foresight
from reverie.report.formatting import number

MOST_RECONSTRUCTION = 0.5
"""Highest acceptable error of reconstructions, relative to the variance of observations. 1 is as good as the mean."""
MOST_OPEN_LOOP = 0.8
"""Highest acceptable error at the end of dreams, relative to the error of repeating the last row."""


def verdict(look: Foresight, score: float | None = None, solved_at: float | None = None) -> str:
    """One sentence. Empty if the foresight has no reconstructions of changing observations."""
    changing = [curves for curves in look.curves if curves.repeat_last[-1] > 0]
    observations = [curves for curves in changing if curves.key.startswith("obs")]
    latents = [curves for curves in changing if curves.key.startswith("latent/")]
    rewards = [curves for curves in changing if curves.key == "reward"]
    if any(curves.key in look.reconstructions for curves in observations):
        return (
            _reconstruction(look, observations)
            or _open_loop(observations, "The dynamics are behind", "what is seen is reconstructed, but")
            or _open_loop(rewards, "The reward is behind", "what is seen is foreseen, but")
            or _actor(score, solved_at, "reconstruction, dynamics and reward pass")
        )
    if not latents:
        return ""
    return (
        _open_loop(latents, "The dynamics are behind", "the model has no decoder, and")
        or _open_loop(rewards, "The reward is behind", "latents are foreseen, but")
        or _actor(score, solved_at, "dynamics and reward pass")
    )


def _reconstruction(look: Foresight, observations: list[Curves]) -> str:
    # The mean squared difference of two rows far apart is twice the variance.
    known = {curves.key: curves.repeat_last[-1] / 2 for curves in observations if curves.key in look.reconstructions}
    shares = {key: look.reconstructions[key] / variance for key, variance in known.items()}
    worst = max(shares, key=lambda key: shares[key], default=None)
    if worst is None or shares[worst] <= MOST_RECONSTRUCTION:
        return ""
    share = number(shares[worst])
    return f"Reconstruction is behind: {worst} is shown with {share} of the error that ignoring it would have."


def _open_loop(curves: list[Curves], part: str, but: str) -> str:
    shares = {found.key: found.model[-1] / found.repeat_last[-1] for found in curves}
    worst = max(shares, key=lambda key: shares[key], default=None)
    if worst is None or shares[worst] <= MOST_OPEN_LOOP:
        return ""
    steps = next(len(found.model) for found in curves if found.key == worst)
    error = f"{number(shares[worst])} times the error of repeating the last one"
    return f"{part}: {but} {steps} steps ahead {worst} has {error}."


def _actor(score: float | None, solved_at: float | None, sound: str) -> str:
    if score is None or solved_at is None:
        return f"No part of the model is behind: {sound}; if returns are low, it is the actor."
    if score < solved_at:
        return f"The actor is behind: {sound}, but the policy scores {number(score)} of {number(solved_at)}."
    return f"No part is behind: {sound}, and the policy scores {number(score)} of {number(solved_at)}."
