"""Dreamer: where gradients go, imagined returns and losses, what is stored, that acting and training agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from reverie.algos.dreamer import Dreamer
from reverie.algos.dreamer_batch import prepare
from reverie.backend import DEFAULT, Backend
from reverie.core.contracts import Decodes, WorldModel
from reverie.core.errors import RunError
from reverie.core.rng import make_generator
from reverie.core.specs import ActionSpec, Specs
from reverie.core.types import Clock, Mode, Row, random_array
from reverie.data.replay import ReplayBuffer
from reverie.nets.one_hot import to_dense
from tests.unit.algos.batches import (
    BOX,
    DISCRETE,
    MIXED_ACTION,
    MULTI_BINARY,
    MULTI_DISCRETE,
    OBSERVATIONS,
    VECTOR,
    column_of,
    random_rows,
    with_other,
)  # fmt: skip

RSSM = {"deter": 8, "hidden": 6, "stoch": 3, "classes": 4, "blocks": 2}
CODEC = {"depth": 2, "multipliers": (1, 2), "layers": 1, "units": 6}
SMALL: dict[str, Any] = {
    "batch_size": 2, "batch_length": 5, "imagine_steps": 4, "horizon": 10, "learning_rate": 1e-2,
    "model": {"kind": "rssm", "rssm": RSSM, "encoder": CODEC, "decoder": CODEC,
              "reward": {"units": 6, "bins": 41}, "continuation": {"units": 6}},
    "actor": {"layers": 1, "units": 6, "output_scale": 1.0}, "critic": {"layers": 1, "units": 6, "bins": 41},
    "optimizer": {"kind": "laprop", "warmup": 0},
}  # fmt: skip
ACTIONS = {"discrete": DISCRETE, "box": BOX, "multi_discrete": MULTI_DISCRETE, "multi_binary": MULTI_BINARY,
           "mixed": MIXED_ACTION}  # fmt: skip


def make(
    action: ActionSpec = DISCRETE, observations: Any = VECTOR, backend: Backend = DEFAULT, **settings: Any
) -> Dreamer:
    config = Dreamer.Config.model_validate({**SMALL, **settings})
    agent = Dreamer(config, Specs(observations, action), make_generator(0, "weights"), backend)
    stir(agent)
    return agent


def stir(agent: Dreamer) -> None:
    """Give heads random weights: they start at 0, which would hide errors, and the target critic equals the value.

    Bins are less likely the farther out they are. Otherwise the outermost, at 5e8, would dominate everything.
    """
    rng = make_generator(0, "heads")
    for parameter in (*agent.critic.parameters(), *agent.model.reward.output.parameters()):
        parameter.data += 0.3 * torch.as_tensor(random_array(rng, *parameter.shape))
    for head in (agent.critic.value, agent.critic.target, agent.model.reward):
        if not head.is_normal:
            head.output.bias.data -= torch.linspace(-20, 20, len(head.bins)).abs()


def make_batch(agent: Dreamer, seed: int = 0) -> Row:
    """Rows (2, 6) as the buffer serves them: with ids, and latents of earlier times."""
    rows = random_rows(agent.specs, 2, 6, seed)
    rng = make_generator(seed, "notes")
    rows["is_first"][0, 3] = rows["truncated"][0, 2] = True
    rows["terminated"][1, 4] = rows["is_first"][1, 5] = True
    return rows | {
        "note/deter": rng.uniform(-1, 1, (2, 6, 8)).astype(np.float32),
        "note/stoch": rng.integers(1, 5, (2, 6, 3)).astype(np.uint8),
        "id": np.arange(12).reshape(2, 6),
    }


def make_buffer(agent: Dreamer, steps: int, **settings: Any) -> ReplayBuffer:
    """Rows of one env without latents, whose rewards count them."""
    buffer = ReplayBuffer(ReplayBuffer.Config(capacity=100, **settings), agent.specs, 1)
    rows = random_rows(agent.specs, 1, steps)
    rows["reward"][:] = np.arange(steps)
    for step in range(steps):
        buffer.add(column_of(rows, step))
    return buffer


def learn(agent: Dreamer, batch: Row, hook: str = "update") -> dict[str, float]:
    update = getattr(agent, hook)(batch, Clock(), make_generator(1, "noise"))
    return {key: float(value) for key, value in update.metrics.items()}


def all_weights(agent: Dreamer) -> torch.Tensor:
    return weights(agent.model, agent.actor, agent.critic)


def weights(*modules: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for module in modules for p in module.parameters()])


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("observations", OBSERVATIONS)
def test_every_kind_of_observation_and_action(observations: str, action: str) -> None:
    agent = make(ACTIONS[action], OBSERVATIONS[observations])
    before = all_weights(agent)
    metrics = learn(agent, make_batch(agent))
    assert all(np.isfinite(value) for value in metrics.values())
    assert not torch.equal(before, all_weights(agent))
    now = column_of(random_rows(agent.specs, 3, 1))
    now["previous_action"] = now.pop("action")
    given, carry, extras = agent.act(now, agent.initial_carry(3), Clock(), make_generator(0), Mode.COLLECT)
    assert given.shape == now["previous_action"].shape
    assert given.dtype == agent.specs.action.dtype
    assert extras["note/deter"].shape == (3, 8)
    assert extras["note/stoch"].dtype == np.uint8
    np.testing.assert_array_equal(carry["deter"], extras["note/deter"])


def test_each_split_hook_moves_only_its_part() -> None:
    agent = make()
    model, behaviour = weights(agent.model), weights(agent.actor, agent.critic)
    learn(agent, make_batch(agent), "update_world_model")
    assert not torch.equal(weights(agent.model), model)
    assert torch.equal(weights(agent.actor, agent.critic), behaviour)
    model = weights(agent.model)
    learn(agent, make_batch(agent), "update_controller")
    assert torch.equal(weights(agent.model), model)
    assert not torch.equal(weights(agent.actor), behaviour[: len(weights(agent.actor))])


@pytest.mark.parametrize(("settings", "hook", "shown"), [
    ({}, "update", 0.2), ({}, "update_world_model", 0.2), ({}, "update_controller", 0.5),
    ({"image_bias_init": "half"}, "update", 0.5),
])  # fmt: skip
def test_before_its_first_update_the_decoder_shows_the_mean_brightness(
    settings: dict[str, Any], hook: str, shown: float
) -> None:
    agent = make(observations=OBSERVATIONS["image"], learning_rate=0.0, **settings)
    batch = make_batch(agent)
    batch["obs"] = np.full_like(batch["obs"], 51)
    learn(agent, batch, hook)
    assert agent.model.decoder.conv.output_bias.sigmoid().tolist() == pytest.approx([shown] * 3)
    learn(agent, batch | {"obs": np.full_like(batch["obs"], 255)}, hook)
    assert agent.model.decoder.conv.output_bias.sigmoid().tolist() == pytest.approx([shown] * 3)


def model_gradient(agent: Dreamer, **loss_weights: float) -> torch.Tensor:
    none = dict.fromkeys(type(agent.config.loss_weights).model_fields, 0.0)
    chosen = type(agent.config.loss_weights)(**{**none, **loss_weights})
    agent.config = agent.config.model_copy(update={"loss_weights": chosen})
    agent.update(make_batch(agent), Clock(), make_generator(1, "noise"))
    return agent.model_optimizer.flat.grad.clone()


def test_imagination_does_not_train_the_model_but_replayed_values_do() -> None:
    assert (model_gradient(make(), policy=1.0, value=1.0) == 0).all()
    # Not just rounding: at least a twentieth of the reward's gradient.
    assert model_gradient(make(), replay_value=1.0).norm() > 0.05 * model_gradient(make(), reward=1.0).norm()
    assert (model_gradient(make(replay_value_gradient=False), replay_value=1.0) == 0).all()


def test_the_joint_update_trains_the_model_as_the_split_one_does() -> None:
    joint, split = make(replay_value_gradient=False), make(replay_value_gradient=False)
    learn(joint, make_batch(joint))
    learn(split, make_batch(split), "update_world_model")
    assert torch.equal(weights(joint.model), weights(split.model))


def test_actions_of_final_rows_change_nothing() -> None:
    first, second = make(), make()
    batch = make_batch(first)
    final = batch["terminated"] | batch["truncated"]
    other = {**batch, "action": np.where(final, (batch["action"] + 1) % 3, batch["action"])}
    learn(first, batch)
    learn(second, other)
    assert torch.equal(all_weights(first), all_weights(second))
    third = make()
    learn(third, with_other(batch, ~final))
    assert not torch.equal(weights(first.model), weights(third.model))


def make_padded_batch(agent: Dreamer) -> Row:
    """A batch in which the second sequence is padding from its third row on."""
    batch = make_batch(agent)
    valid = np.ones((2, 6), bool)
    valid[1, 2:] = False
    return batch | {"valid": valid, "importance": np.ones((2, 6), np.float32)}


@pytest.mark.parametrize("hook", Dreamer.traits.hooks)
@pytest.mark.parametrize("form", [{}, {"reparameterised_weight": 0.5, "return_scale": {"kind": "deviation"}}])
def test_rows_that_are_not_valid_change_nothing(hook: str, form: dict[str, Any]) -> None:
    agents, updates = [], []
    for seed in (1, 2):
        agent = make(**form)
        batch = make_padded_batch(agent)
        batch = with_other(batch, ~batch["valid"], seed)
        updates.append(getattr(agent, hook)(batch, Clock(), make_generator(1, "noise")))
        agents.append(agent)
    assert torch.equal(*map(all_weights, agents))
    assert agents[0].return_scale() == agents[1].return_scale()
    assert updates[0].metrics == updates[1].metrics
    if hook != "update_controller":
        priorities = [update.write_back.columns["priority"] for update in updates if update.write_back]
        np.testing.assert_array_equal(*priorities)
    unpadded = make(**form)
    batch = make_padded_batch(unpadded)
    del batch["valid"]
    learn(unpadded, batch, hook)
    assert not torch.equal(all_weights(unpadded), all_weights(agents[0]))


def test_losses_are_means_over_the_rows_that_are_valid() -> None:
    agent = make()
    batch = make_padded_batch(agent)
    batch["reward"][:] = np.where(batch["valid"], 7, 100)
    agent.model_losses = lambda observed, rows: {  # type: ignore[method-assign]
        "dynamics": rows["reward"] + 0 * observed.latent.deter.mean()
    }
    update = agent.update_world_model(batch, Clock(), make_generator(1, "noise"))
    assert float(update.metrics["loss_dynamics"]) == pytest.approx(7)
    assert update.write_back is not None
    assert update.write_back.columns["priority"] == pytest.approx(np.array([[7.0] * 5, [7, 0, 0, 0, 0]]))
    assert agent.held_out_metrics("update", batch, Clock(), make_generator(1))["loss_dynamics"] == pytest.approx(7)


def test_sequences_start_from_the_latent_of_the_row_before() -> None:
    def loss(change: Any = None, **settings: Any) -> float:
        agent = make(**settings)
        batch = make_batch(agent)
        if change is not None:
            batch["note/deter"][change] *= -1
        return learn(agent, batch)["loss_reconstruction"]

    assert loss() != loss((slice(None), 0))
    assert loss() == loss((slice(None), slice(1, None)))
    assert loss(replay_context=False) == loss((slice(None), 0), replay_context=False)
    assert loss(replay_context=False) != loss()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_sequences_after_rows_without_latents_start_from_the_initial_latent(dtype: str) -> None:
    """As with data stored elsewhere, also when latents have been written to some rows."""
    agent = make()
    buffer = make_buffer(agent, 40, annotation_dtype=dtype)
    rng, read, written = make_generator(0), agent.reads["update"], set()
    found = {True: 0, False: 0}
    for _ in range(8):
        batch = buffer.sample(read, {}, rng)
        start, _ = prepare(batch, agent.model, agent.config, agent.backend)
        for sequence, row in enumerate(batch["id"][:, 0].tolist()):
            is_written = row in written
            assert (start.deter[sequence] != 0).any() == is_written
            assert start.stoch[sequence].sum() == (3 if is_written else 0)  # a class of each variable
            found[is_written] += 1
        update = agent.update(batch, Clock(), rng)
        buffer.write_back(update.write_back)
        written |= set(update.write_back.ids.ravel().tolist())
    assert min(found.values()) > 3


def test_a_state_with_latents_in_the_older_format_is_refused() -> None:
    first, second = make(), make()
    learn(first, make_batch(first))
    state, before = first.state(), all_weights(second)
    del state["stored_latents"]
    with pytest.raises(RunError, match="--init-from"):
        second.load_state(state)
    assert torch.equal(before, all_weights(second))
    second.load_policy_state(state)  # weights alone can be loaded
    assert not torch.equal(before, all_weights(second))


def test_checkpoints_with_older_parameter_names_load() -> None:
    """Before, the target critic was called ``slow``, and the convolutions of encoder and decoder ``pyramid``."""
    first, second = make(observations=OBSERVATIONS["mixed"]), make(observations=OBSERVATIONS["mixed"])
    learn(first, make_batch(first))
    state = first.state()
    old = {"conv.layers": "pyramid.layers", "conv.norms": "pyramid.norms", "conv.from": "pyramid.from"}
    old |= {"conv.start": "pyramid.start"}
    for part in ("model", "critic"):
        for name in list(state[part]):
            renamed = "slow." + name.removeprefix("target.") if name.startswith("target.") else name
            for new, before in old.items():
                renamed = renamed.replace(new, before)
            state[part][renamed] = state[part].pop(name)
    assert not any("conv." in name or "target" in name for part in ("model", "critic") for name in state[part])
    second.load_state(state)
    assert torch.equal(all_weights(first), all_weights(second))


def test_new_latents_are_written_back_for_all_rows_but_the_context() -> None:
    agent = make()
    batch = make_batch(agent)
    for hook in ("update", "update_world_model"):
        write_back = getattr(agent, hook)(batch, Clock(), make_generator(1, "noise")).write_back
        np.testing.assert_array_equal(write_back.ids, batch["id"][:, 1:])
        assert write_back.columns["note/deter"].shape == (2, 5, 8)
        assert write_back.columns["note/stoch"].shape == (2, 5, 3)
        assert np.abs(write_back.columns["note/deter"]).max() <= 1
        assert "priority" not in write_back.columns


def test_priorities_are_the_mean_model_error_from_each_row_on() -> None:
    """One loss is 1 in the last row of the first sequence, another is 5 everywhere with weight 0.1."""
    agent = make()
    batch = make_batch(agent)
    batch["importance"] = np.ones((2, 6), np.float32)
    weights = agent.config.loss_weights.model_copy(update={"dynamics": 1.0, "representation": 0.1})
    agent.config = agent.config.model_copy(update={"loss_weights": weights})
    agent.model_losses = lambda observed, rows: {  # type: ignore[method-assign]
        "dynamics": torch.tensor([[0.0, 0, 0, 0, 1], [0, 0, 0, 0, 0]]) + 0 * observed.latent.deter.mean(),
        "representation": torch.full((2, 5), 5.0),
    }
    for hook in ("update", "update_world_model"):
        priority = getattr(agent, hook)(batch, Clock(), make_generator(1, "noise")).write_back.columns["priority"]
        assert priority[0] == pytest.approx(0.5 + np.array([1 / 5, 1 / 4, 1 / 3, 1 / 2, 1]))
        assert priority[1] == pytest.approx(0.5)


@pytest.mark.parametrize("hook", ["update", "update_world_model"])
def test_the_row_that_a_sequence_is_sampled_by_gets_its_priority(hook: str) -> None:
    """The loss of a row is its number, so that of the sequence after row n is n + 3, the mean of n + 1 to n + 5."""
    agent = make(batch_size=1)
    agent.model_losses = lambda observed, rows: {  # type: ignore[method-assign]
        "dynamics": rows["reward"] + 0 * observed.latent.deter.mean()
    }
    buffer = make_buffer(agent, 40, sampler={"kind": "prioritised", "alpha": 1})
    drawn = set()
    for number in range(30):
        batch = buffer.sample(agent.reads[hook], {}, make_generator(number, "draws"))
        update = getattr(agent, hook)(batch, Clock(), make_generator(number, "noise"))
        buffer.write_back(update.write_back)
        anchor, weights = int(buffer.usage.drawn[0]), buffer.state()["sampler"]["weights"]
        expected = [np.arange(row + 1, anchor + 6).mean() for row in range(anchor, anchor + 5)]
        np.testing.assert_allclose(weights[anchor : anchor + 5], expected, rtol=1e-5)
        notes = buffer.annotations.gather(buffer.rows.ids)["note/deter"]
        np.testing.assert_array_equal(notes[anchor + 1 : anchor + 6], update.write_back.columns["note/deter"][0])
        drawn.add(anchor)
    assert len(drawn) > 10


@pytest.mark.parametrize("engine", ["numpy", "torch"])
@pytest.mark.parametrize("observations", [*OBSERVATIONS, "vector without symlog"])
def test_acting_and_training_compute_the_same_latents(
    engine: str, observations: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step by step with a carry, and all at once from replay: the same latents for the same noise."""
    kind, _, is_plain = observations.partition(" without ")
    model = SMALL["model"] | {"encoder": {**CODEC, "symlog": not is_plain}}
    agent = make(observations=OBSERVATIONS[kind], backend=Backend(engine=engine), model=model)
    assert (agent.observer is None) == (engine == "torch")
    noise = np.float32([0.2, 0.5, 0.8])
    monkeypatch.setattr(agent.model.rssm, "sample_noise", lambda rng, *leading: np.tile(noise, (*leading, 1)))
    batch = make_batch(agent)
    rng = make_generator(0)
    carry, seen = agent.initial_carry(2), []
    batch["is_first"][:, 0] = True
    for column in range(6):
        previous = batch["action"][:, max(column - 1, 0)]
        now = {**column_of(batch, column), "previous_action": previous}
        _, carry, notes = agent.act(now, carry, Clock(), rng, Mode.COLLECT)
        seen.append(notes)
    batch["note/deter"][:, 0], batch["note/stoch"][:, 0] = seen[0]["note/deter"], seen[0]["note/stoch"]
    latent = agent.observe_batch(batch, rng)
    for column in range(5):
        np.testing.assert_allclose(latent.deter[:, column], seen[column + 1]["note/deter"], rtol=1e-5, atol=1e-6)
        notes = {key.removeprefix("note/"): torch.as_tensor(value) for key, value in seen[column + 1].items()}
        stored = agent.model.rssm.unpack(notes)
        assert torch.equal(latent.stoch[:, column], stored.stoch)


@pytest.mark.parametrize("action", ACTIONS)
def test_numpy_and_torch_act_alike(action: str) -> None:
    found = {}
    for engine in ("numpy", "torch"):
        agent = make(ACTIONS[action], backend=Backend(engine=engine))
        learn(agent, make_batch(agent))  # weights that moved are seen too
        now = column_of(random_rows(agent.specs, 4, 2), 1)
        now["previous_action"] = now.pop("action")
        now["is_first"] = np.array([False, True, False, False])
        stoch = np.arange(12, dtype=np.uint8).reshape(4, 3) % 5  # all classes, and none
        carry = {"deter": np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8), "stoch": stoch}
        found[engine] = agent.act(now, carry, Clock(), make_generator(3), Mode.COLLECT)
    np.testing.assert_allclose(found["numpy"][0], found["torch"][0], rtol=1e-4, atol=1e-5)
    for key, value in found["torch"][1].items():
        assert found["numpy"][1][key].dtype == value.dtype
        np.testing.assert_allclose(found["numpy"][1][key], value, rtol=1e-4, atol=1e-5)


def test_evaluation_takes_the_best_action() -> None:
    agent = make()
    agent.actor.output.weight.data *= 0.1
    agent.actor.output.bias.data.copy_(torch.tensor([0.0, 0.0, 3.0]))
    now = column_of(random_rows(agent.specs, 50, 1))
    now["previous_action"] = now.pop("action")
    best, *_ = agent.act(now, agent.initial_carry(50), Clock(), make_generator(0), Mode.EVALUATE)
    drawn, *_ = agent.act(now, agent.initial_carry(50), Clock(), make_generator(0), Mode.COLLECT)
    assert set(best) == {2}
    assert len(set(drawn)) > 1  # the others have about a tenth of the probability


JOINT = ("model", "behaviour")


@pytest.mark.parametrize("fewest", [1, 256])
@pytest.mark.parametrize("action", ["discrete", "box"])
@pytest.mark.parametrize("from_target", [False, True])
@torch.no_grad()
def test_imagined_losses_equal_the_plain_form(
    action: str, fewest: int, from_target: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums over single steps of single trajectories, after the paper's equations."""
    monkeypatch.setattr("reverie.models.rssm.MIN_LOOKUP_COLUMNS", fewest)
    agent = make(ACTIONS[action], bootstrap_from_target=from_target)
    batch = agent.make_sequences(make_batch(agent), make_generator(3), JOINT)
    metrics = agent.loss(batch).metrics
    scale = float(agent.return_scale()[1])
    start = agent.model.observe(batch.context, batch.rows, batch.noise).latent.flatten()
    assert batch.imagination is not None
    imagined, _ = agent.imagine_for_policy(start, batch.imagination)
    features = to_dense(imagined.features)
    value, target = agent.critic(features).mean(), agent.critic.target_mean(features)
    prediction, returns = agent.model.predict(features), agent.imagined_returns(batch)
    policy_losses, value_losses = [], []
    for n in range(10):
        values = [float(number) for number in (target if from_target else value)[:, n]]
        after, weight = values[-1], 1.0
        targets = [0.0] * 4
        for t in reversed(range(4)):
            mixed = 0.05 * values[t + 1] + 0.95 * after
            after = targets[t] = float(prediction.reward[t + 1, n] + prediction.continuation[t + 1, n] * mixed)
        for t in range(4):
            weight *= float(prediction.continuation[t, n])
            policy = agent.actor(features[t, n : n + 1])
            log_prob = float(policy.log_prob(imagined.actions[t, n : n + 1]))
            advantage = (targets[t] - values[t]) / scale
            policy_losses.append(-weight * (log_prob * advantage + 3e-4 * float(policy.entropy())))
            errors = plain_cross_entropies(agent, features[t, n], targets[t], float(target[t, n]))
            value_losses.append(weight * sum(errors))
            assert float(returns[t, n]) == pytest.approx(targets[t], rel=1e-4, abs=1e-4)
    assert float(metrics["loss_policy"]) == pytest.approx(np.mean(policy_losses), rel=1e-4, abs=1e-5)
    assert float(metrics["loss_value"]) == pytest.approx(np.mean(value_losses), rel=1e-4)
    assert returns.shape == (4, 10)
    assert min(float(numbers.std()) for numbers in (returns, value, target, torch.tensor(value_losses))) > 0.1


def plain_cross_entropies(agent: Dreamer, features: torch.Tensor, *targets: float) -> list[float]:
    """Cross entropies of the value at one state with each of the targets, each between two bins."""
    head = agent.critic.value(features[None])
    log_probs, bins = head.logits[0].double().log_softmax(-1).tolist(), head.bins.double().tolist()
    found = []
    for target in targets:
        above = next(index for index, bin_value in enumerate(bins) if bin_value > target)
        weight = (target - bins[above - 1]) / (bins[above] - bins[above - 1])
        found.append(-(weight * log_probs[above] + (1 - weight) * log_probs[above - 1]))
    return found


def plain_replay_return(rows: dict[str, torch.Tensor], bootstrap: torch.Tensor, time: int, agent: Dreamer) -> float:
    """The lambda-return after a row of one sequence (T,), bootstrapped with imagined returns."""
    then, lam = time + 1, agent.config.gae_lambda
    if rows["terminated"][then]:
        return float(rows["reward"][then])
    ahead = float(bootstrap[then])
    if not rows["truncated"][then] and then + 1 < len(bootstrap):
        ahead = (1 - lam) * ahead + lam * plain_replay_return(rows, bootstrap, then, agent)
    return float(rows["reward"][then]) + (1 - 1 / agent.config.horizon) * ahead


@torch.no_grad()
def test_the_replay_value_loss_equals_the_plain_form() -> None:
    """Row by row, each with the return that was imagined from it."""
    agent = make(target_regulariser=0.7)
    batch = agent.make_sequences(make_batch(agent), make_generator(1, "noise"), JOINT)
    latent, bootstrap = (
        agent.model.observe(batch.context, batch.rows, batch.noise).latent,
        agent.imagined_returns(batch),
    )
    bootstrap = bootstrap[0].view(2, 5)
    losses = agent.replay_value_loss(latent.features, batch.rows, bootstrap)
    assert float(agent.loss(batch).metrics["loss_replay_value"]) == pytest.approx(float(losses.mean()), rel=1e-5)
    assert losses.shape == (2, 4)
    targets = []
    for sequence in range(2):
        rows = {key: value[sequence] for key, value in batch.rows.items()}
        for time in range(4):
            found = float(losses[sequence, time])
            if rows["terminated"][time] or rows["truncated"][time]:
                assert found == 0
                continue
            targets.append(plain_replay_return(rows, bootstrap[sequence], time, agent))
            features = latent.features[sequence, time]
            target_value = float(agent.critic.target(features[None]).mean())
            return_loss, target_loss = plain_cross_entropies(agent, features, targets[-1], target_value)
            assert found == pytest.approx(return_loss + 0.7 * target_loss, rel=1e-4)
    assert len(targets) == 6
    assert np.std(targets) > 0.3


@pytest.mark.parametrize(
    ("end", "returns"),
    [
        # 4 + 0.9 * 30 = 31, then 2 + 0.9 * (10 + 15.5) = 24.95, then 1 + 0.9 * (5 + 12.475) = 16.7275
        ("", (16.7275, 24.95, 31.0)),
        # Nothing comes after the end: 2, then 1 + 0.9 * (5 + 1) = 6.4. The final row itself has weight 0.
        ("terminated", (6.4, 2.0, None)),
        # The imagined return bootstraps what comes after it: 2 + 0.9 * 20 = 20, then 1 + 0.9 * (5 + 10) = 14.5
        ("truncated", (14.5, 20.0, None)),
    ],
)
def test_the_replay_value_loss_by_hand(end: str, returns: tuple[float | None, ...]) -> None:
    """The value is 1 and the target critic's 3 everywhere; the third of four rows may end an episode."""
    agent = make(critic={"layers": 1, "units": 6, "output": "normal"}, gae_lambda=0.5, target_regulariser=0.25)
    for head, value in ((agent.critic.value, 1.0), (agent.critic.target, 3.0)):
        head.output.weight.data.zero_()
        head.output.bias.data.fill_(value)
    rows = {name: torch.zeros(1, 4, dtype=torch.bool) for name in ("is_first", "terminated", "truncated")}
    rows |= {"reward": torch.tensor([[9.0, 1.0, 2.0, 4.0]]), "action": torch.zeros(1, 4, dtype=torch.int64)}
    if end:
        rows[end][0, 2] = rows["is_first"][0, 3] = True
    features, bootstrap = torch.zeros(1, 4, agent.model.features), torch.tensor([[99.0, 10.0, 20.0, 30.0]])
    found = agent.replay_value_loss(features, rows, bootstrap)
    wanted = [0.0 if target is None else 0.5 * (target - 1) ** 2 + 0.25 * 0.5 * 2**2 for target in returns]
    assert found[0].tolist() == pytest.approx(wanted, rel=1e-5)


def test_given_actions_are_imagined() -> None:
    agent = make()
    start = agent.observe_batch(make_batch(agent), make_generator(2)).flatten()
    actions = np.zeros((3, 10), np.int64)
    dream = agent.imagine_trajectory(start, make_generator(0), actions)
    other = agent.imagine_trajectory(start, make_generator(0), actions + 1)
    assert torch.equal(dream.features[0], other.features[0])
    assert not torch.equal(dream.features[1], other.features[1])
    np.testing.assert_array_equal(dream.actions, actions)
    assert agent.imagine_trajectory(start, make_generator(0), steps=2).features.shape[:2] == (3, 10)


def test_the_target_critic_follows() -> None:
    agent = make()
    before = weights(agent.critic.target)
    learn(agent, make_batch(agent))
    expected = torch.lerp(before, weights(agent.critic.value), 0.02)
    torch.testing.assert_close(weights(agent.critic.target), expected)


def test_updates_repeat_bit_for_bit_and_continue_from_a_state() -> None:
    first, second, third = make(), make(), make()
    for seed in range(8):
        learn(first, make_batch(first, seed))
        if seed < 4:
            learn(second, make_batch(second, seed))
    third.load_state(second.state())
    for seed in range(4, 8):
        learn(third, make_batch(third, seed))
    assert torch.equal(all_weights(first), all_weights(third))


def test_a_policy_state_is_enough_to_act() -> None:
    first, second = make(), make()
    learn(first, make_batch(first))
    second.load_policy_state(first.policy_state())
    now = column_of(random_rows(first.specs, 4, 1))
    now["previous_action"] = now.pop("action")
    acts = [a.act(now, a.initial_carry(4), Clock(), make_generator(0), Mode.COLLECT) for a in (first, second)]
    np.testing.assert_array_equal(acts[0][0], acts[1][0])
    np.testing.assert_array_equal(acts[0][1]["deter"], acts[1][1]["deter"])


def foreseen_rows(agent: Dreamer) -> Row:
    """Rows (2, 6) that begin with episodes, as an evaluation collects them."""
    rows = random_rows(agent.specs, 2, 6)
    rows["is_first"][:, 0] = rows["is_first"][1, 3] = rows["terminated"][1, 2] = True
    return rows | {"previous_action": np.roll(rows["action"], 1, axis=1)}


@pytest.mark.parametrize("observations", ["vector", "mixed"])
@pytest.mark.parametrize("action", ["discrete", "box"])
def test_the_world_model_in_numpy_is_that_of_updates(
    observations: str, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make(ACTIONS[action], observations=OBSERVATIONS[observations])
    monkeypatch.setattr(agent.model.rssm, "sample_noise", lambda rng, *leading: np.full((*leading, 3), 0.5, np.float32))
    rows, before = foreseen_rows(agent), all_weights(agent)
    assert isinstance(agent, WorldModel)
    assert isinstance(agent, Decodes)
    observed = agent.observe(rows, make_generator(0))
    context = {key: np.concatenate([value[:, :1], value], axis=1) for key, value in rows.items()}
    latent = agent.observe_batch(context, make_generator(0))
    assert torch.equal(agent.to_latent(observed.latents).features, latent.features)
    decoded, wanted = agent.decode(observed.latents), agent.model.decode(latent)
    for key in wanted:
        np.testing.assert_array_equal(decoded[key], wanted[key].numpy())
    begin = {key: values[[0, 1], [3, 2]] for key, values in observed.latents.items()}
    actions = np.stack([rows["action"][0, 3:5], rows["action"][1, 2:4]])  # (N, H, ...)
    imagined = agent.imagine(begin, actions, make_generator(0))
    start = type(latent)(latent.deter[[0, 1], [3, 2]], latent.stoch[[0, 1], [3, 2]])
    dream = agent.imagine_trajectory(start, make_generator(0), actions.swapaxes(0, 1))
    features = agent.to_latent(imagined).features
    torch.testing.assert_close(features, dream.features[1:].transpose(0, 1), rtol=1e-5, atol=1e-6)
    predicted = agent.predict(observed.latents)
    assert {key: value.shape for key, value in predicted.items()} == dict.fromkeys(
        ("reward", "continuation", "value"), (2, 6)
    )
    np.testing.assert_allclose(predicted["value"], agent.critic.mean(latent.features).detach(), rtol=1e-5)
    assert set(observed.losses) == {"dynamics", "representation", "reconstruction", "reward", "continuation"}
    assert {key: value.shape for key, value in agent.initial(4).items()} == {
        key: (4, *value.shape[2:]) for key, value in observed.latents.items()
    }
    assert torch.equal(before, all_weights(agent))


def test_the_probability_to_go_on_is_shown_without_the_discount() -> None:
    agent = make()
    torch.nn.init.zeros_(agent.model.continuation.output.weight)
    agent.model.continuation.output.bias.data.fill_(float(np.log(9.0)))  # 0.9: all of the discount of 0.9
    np.testing.assert_allclose(agent.predict(agent.initial(2))["continuation"], 1.0, rtol=1e-5)
    agent.model.continuation.output.bias.data.fill_(0.0)
    np.testing.assert_allclose(agent.predict(agent.initial(2))["continuation"], 0.5 / 0.9, rtol=1e-5)


def test_held_out_losses_are_those_of_an_update_that_does_not_happen() -> None:
    agent, learner = make(replay_context=False), make(replay_context=False)
    before = all_weights(agent)
    held_out = agent.held_out_metrics("update", make_batch(agent), Clock(), make_generator(1, "noise"))
    trained = learn(learner, make_batch(learner), "update_world_model")
    assert torch.equal(before, all_weights(agent))
    for name, value in held_out.items():
        assert value == pytest.approx(trained[name], rel=1e-5)
    assert len(held_out) == 5


def test_every_module_reports_gradient_and_update_norms() -> None:
    agent = make()
    first, second = (learn(agent, make_batch(agent)) for _ in range(2))
    modules = ("encoder", "rssm", "decoder", "reward", "continuation", "actor", "critic")
    assert all(first[f"{what}_norm_{module}"] > 0 for what in ("grad", "update") for module in modules)
    model = [first[f"grad_norm_{module}"] for module in modules[:5]]
    assert np.linalg.norm(model) == pytest.approx(first["model_grad_norm"], rel=1e-5)
    assert "grad_norm_encoder" not in second
