"""Which part of a world-model agent is behind: the first link of the chain that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie.report.foresight_data import Curves, Foresight, read_foresight
from reverie.report.foresight_section import foresight_section
from reverie.report.markdown import run_text
from reverie.report.page import run_page
from reverie.report.run_data import gather
from reverie.report.world_model_verdict import verdict
from tests.run_folders import write_run
from tests.unit.report.test_foresight_section import write_look


def make_look(shown: float = 0.01, obs: float = 0.02, reward: float = 0.1) -> Foresight:
    """Repeating has an error of 0.1 in what is seen, so its variance is 0.05, and of 0.5 in rewards."""
    curves = [Curves("obs", [0.0, obs], [0.05, 0.1]), Curves("reward", [0.0, reward], [0.4, 0.5])]
    return Foresight(200.0, curves, [], [], {"obs": shown})


def without_decoder(latent: float = 0.02, reward: float = 0.1) -> Foresight:
    curves = [Curves("reward", [0.0, reward], [0.4, 0.5]), Curves("latent/z", [0.0, latent], [0.05, 0.1])]
    return Foresight(200.0, curves, [], [], {})


@pytest.mark.parametrize(("look", "score", "said"), [
    (make_look(shown=0.049), 3.0, "Reconstruction is behind: obs is shown with 0.9800 of the error that ignoring it"),
    (make_look(shown=0.049, obs=0.2, reward=1.0), 3.0, "Reconstruction is behind"),
    (make_look(obs=0.2), 3.0, "The dynamics are behind: what is seen is reconstructed, but 2 steps ahead obs has 2"),
    (make_look(reward=0.5), 3.0, "The reward is behind: what is seen is foreseen, but 2 steps ahead reward has 1.000"),
    (make_look(), 3.0, "The actor is behind: reconstruction, dynamics and reward pass, but the policy scores 3.000"),
    (make_look(), 29.0, "No part is behind"),
    (make_look(), None, "No part of the model is behind"),
    (without_decoder(latent=0.2), 3.0, "The dynamics are behind: the model has no decoder, and 2 steps ahead latent/z"),
    (without_decoder(reward=0.5), 3.0, "The reward is behind: latents are foreseen, but 2 steps ahead reward has 1.0"),
    (without_decoder(), 3.0, "The actor is behind: dynamics and reward pass, but the policy scores 3.000"),
])  # fmt: skip
def test_the_first_part_that_fails_is_named(look: Foresight, score: float | None, said: str) -> None:
    sentence = verdict(look, score, 29.0)
    assert sentence.startswith(said)
    assert sentence.count(".\n") == 0
    assert sentence.endswith(".")


def test_at_the_bounds_nothing_is_behind() -> None:
    assert verdict(make_look(shown=0.025, obs=0.08, reward=0.4)).startswith("No part of the model is behind")


def test_what_never_changes_is_not_judged() -> None:
    still = Curves("obs", [0.1, 0.1], [0.0, 0.0])
    assert verdict(Foresight(1.0, [still], [], [], {"obs": 0.1})) == ""
    constant = Curves("reward", [0.3, 0.3], [0.0, 0.0])
    assert "behind: reconstruction, dynamics" in verdict(
        Foresight(1.0, [make_look().curves[0], constant], [], [], {"obs": 0})
    )


def test_without_reconstructions_there_is_no_verdict() -> None:
    assert verdict(Foresight(1.0, make_look().curves, [], [], {})) == ""


def test_page_and_text_say_it(tmp_path: Path) -> None:
    metrics = {"reconstruction/obs/mse": 0.19, "calibration/reward_error": 0.25, "calibration/reward_bias": -0.5}
    write_look(write_run(tmp_path), metrics=metrics)
    run = gather(tmp_path / "Toy-v0-ppo-s1-1")
    said = "Reconstruction is behind: obs is shown with 0.9500 of the error"
    assert f"<p><b>{said}" in run_page(run)
    assert f"## World model\n\n{said}" in run_text(run)


def test_a_strange_key_is_escaped(tmp_path: Path) -> None:
    metrics = {"reconstruction/<i>/mse": 9.0}
    write_look(tmp_path, open_loop={"<i>": {"mse": [1], "repeat_last_mse": [2]}}, metrics=metrics)
    look = read_foresight(tmp_path, [])
    assert look is not None
    assert "<i>" not in foresight_section(look, judged=verdict(look))
