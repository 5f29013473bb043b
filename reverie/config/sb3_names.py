"""Names of Stable-Baselines3 and our keys for them, by algorithm. Pure data for :mod:`reverie.config.sb3`.

Names are translated in this order: later ones build on the results of earlier ones. ``docs/from_sb3.md`` shows
the same table, and a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

ANY = "*"
LEARN = "phases.<learn>"
"""The last phase that collects and updates."""
COLLECT, UPDATE = f"{LEARN}.collect", f"{LEARN}.update"


@dataclass(frozen=True)
class Ours:
    """Our key for a name. ``how`` names the conversion, if the value changes too."""

    key: str
    how: str = ""


@dataclass(frozen=True)
class Without:
    """Why a name has no meaning for an algorithm, and what to use instead."""

    reason: str


Meaning = Ours | Without


def _same(key: str, *kinds: str) -> dict[str, Meaning]:
    return {kind: Ours(key) for kind in kinds or (ANY,)}


_NO_REPLAY = Without("it learns from each rollout once and keeps no replay; its length is n_steps")
_NO_ROLLOUT = Without(
    "it learns from a replay buffer, not from rollouts of fixed length. train_freq sets how much is collected between "
    "updates, algorithm.n_step the length of n-step returns"
)
_NO_EPOCHS = Without("it draws batches from a replay buffer; gradient_steps sets how many updates follow a collection")
_NO_CLIP = Without("only PPO clips its probability ratio")
_EPSILON_ONLY = Without("it explores by its own entropy, not by random actions: see ent_coef")
_NETWORK = "algorithm.network"

NAMES: dict[str, dict[str, Meaning]] = {
    # The run.
    "n_envs": _same("env.num_envs"),
    "total_timesteps": {ANY: Ours(f"{LEARN}.duration_steps", "budget")},
    "n_timesteps": {ANY: Ours(f"{LEARN}.duration_steps", "budget")},
    "device": _same("backend.device"),
    "verbose": {ANY: Without("a run always shows its progress; --quiet turns that off")},
    "tensorboard_log": {ANY: Without("curves go into the run folder: log.tensorboard=true")},
    "policy": {ANY: Without("the network follows from the observations; algorithm.network.kind chooses another one")},
    # What every algorithm has.
    "lr": _same("algorithm.learning_rate"),
    "learning_rate": _same("algorithm.learning_rate"),
    "gamma": {
        ANY: Ours("algorithm.gamma"),
        "dreamer": Without("it is set as algorithm.horizon, which is 1 / (1 - gamma)"),
    },
    "batch_size": {
        **_same("algorithm.batch_size", "ppo", "dqn", "sac", "dreamer"),
        "reinforce": Without("it learns from all episodes of a cycle at once: phases.learn.collect.episodes"),
        "qlearning": Without("it learns from all rows of a cycle at once: phases.learn.collect.rows"),
    },
    "max_grad_norm": {
        **_same("algorithm.max_grad_norm", "ppo", "dqn", "reinforce", "dreamer"),
        "sac": Without("its gradients are not clipped"),
    },
    # On-policy.
    "n_steps": {
        "ppo": Ours(f"{COLLECT}.rows", "rows_per_env"),
        "dqn": _NO_ROLLOUT,
        "sac": _NO_ROLLOUT,
        "dreamer": Without("it learns from a replay buffer; algorithm.batch_length is the length of its sequences"),
        "reinforce": Without("it collects whole episodes: phases.learn.collect.episodes"),
    },
    "n_epochs": {"ppo": Ours("algorithm.epochs"), "dqn": _NO_EPOCHS, "sac": _NO_EPOCHS, "dreamer": _NO_EPOCHS},
    "gae_lambda": _same("algorithm.gae_lambda", "ppo", "dreamer"),
    "clip_range": {**_same("algorithm.clip", "ppo"), "dqn": _NO_CLIP, "sac": _NO_CLIP},
    "clip_range_vf": {**_same("algorithm.value_clip", "ppo"), "dqn": _NO_CLIP, "sac": _NO_CLIP},
    "normalize_advantage": {"ppo": Ours("algorithm.normalise_advantage"), "reinforce": Ours("algorithm.normalise")},
    "vf_coef": {
        **_same("algorithm.value_weight", "ppo", "reinforce"),
        "dqn": Without("it learns only values"),
        "sac": Without("its critics have an optimiser of their own"),
    },
    "target_kl": _same("algorithm.target_kl", "ppo"),
    "use_sde": {
        **_same("algorithm.state_dependent_noise", "ppo"),
        "sac": Without("only PPO has state-dependent noise here"),
    },
    "sde_sample_freq": _same("algorithm.noise_steps", "ppo"),
    "ent_coef": {
        **_same("algorithm.entropy_weight", "ppo", "reinforce", "dreamer"),
        "sac": Ours("algorithm.temperature", "temperature"),
        "dqn": Without("its policy has no entropy; it explores by algorithm.epsilon (exploration_final_eps)"),
        "qlearning": Without("its policy has no entropy; it explores by algorithm.exploration"),
    },
    "target_entropy": {"sac": Ours("algorithm.temperature.target_entropy", "unless_auto")},
    # Off-policy.
    "buffer_size": {
        **_same("buffers.main.capacity", "dqn", "sac", "dreamer"),
        "ppo": _NO_REPLAY,
        "reinforce": _NO_REPLAY,
        "qlearning": _NO_REPLAY,
    },
    "learning_starts": {
        **{kind: Ours("phases.<prefill>.duration_steps", "prefill") for kind in ("dqn", "sac", "dreamer")},
        "ppo": _NO_REPLAY,
    },
    "train_freq": {
        **{kind: Ours(f"{COLLECT}.rows", "rows_per_env") for kind in ("dqn", "sac", "dreamer")},
        "ppo": Without("it updates after every rollout; n_steps sets its length"),
    },
    "gradient_steps": {
        **{kind: Ours(f"{UPDATE}.updates", "updates") for kind in ("dqn", "sac")},
        "dreamer": Without("its updates follow from phases.learn.update.train_ratio, replayed rows per env step"),
        "ppo": Without("it passes over each rollout n_epochs times in batches of batch_size"),
    },
    "tau": {
        **_same("algorithm.target_rate", "dqn", "sac"),
        "dreamer": Ours("algorithm.target_rate"),
        "ppo": Without("it has no target network"),
    },
    "target_update_interval": {
        "dqn": Ours("algorithm.target_every", "target_every"),
        "sac": Without("its target critics move a little with every update: algorithm.target_rate (tau)"),
        "dreamer": Ours("algorithm.target_every"),
        "ppo": Without("it has no target network"),
    },
    **{
        name: {"dqn": Ours(f"algorithm.epsilon.{part}", "epsilon"), "sac": _EPSILON_ONLY, "ppo": _EPSILON_ONLY}
        for name, part in (
            ("exploration_initial_eps", "start"), ("exploration_final_eps", "end"), ("exploration_fraction", "to"),
        )
    },
    "action_noise": {ANY: Without("agents explore by their own policies here")},
    "replay_buffer_class": {ANY: Without("how rows are drawn is buffers.main.sampler.kind, e.g. prioritised")},
    "optimize_memory_usage": {ANY: Without("rows are always stored once; frame stacks as single frames")},
    # Networks.
    "policy_kwargs.net_arch": {
        **_same(f"{_NETWORK}.units", "ppo", "dqn", "reinforce"),
        "sac": Ours("algorithm.units"),
        "dreamer": Without("choose a size instead: size12m, size25m ... after ENV:VARIANT"),
    },
    **{
        f"policy_kwargs.net_arch.{part}": {
            "ppo": Ours(f"{_NETWORK}.units", "both_nets"), "sac": Ours("algorithm.units", "both_nets"),
        }
        for part in ("pi", "vf", "qf")
    },
    "policy_kwargs.activation_fn": {
        **{kind: Ours(f"{_NETWORK}.activation", "activation") for kind in ("ppo", "dqn", "reinforce")},
        "sac": Ours("algorithm.activation", "activation"),
    },
    "policy_kwargs.ortho_init": _same("algorithm.orthogonal_init", "ppo"),
    "policy_kwargs.log_std_init": _same("algorithm.initial_log_std", "ppo", "reinforce"),
    "policy_kwargs.n_critics": _same("algorithm.num_critics", "sac"),
    "policy_kwargs.features_extractor_class": {ANY: Without("name your class: algorithm.network.kind=my_module.MyNet")},
    "policy_kwargs.optimizer_class": {ANY: Without("optimisers are chosen by algorithm.optimizer.kind")},
    # VecNormalize, and the short form of RL Zoo.
    "normalize": {ANY: Ours("normaliser", "normaliser")},
    "norm_obs": {ANY: Ours("normaliser.observation", "norm_obs")},
    "norm_reward": _same("normaliser.reward"),
    "clip_obs": _same("normaliser.observation_clip"),
    "clip_reward": _same("normaliser.reward_clip"),
}  # fmt: skip


def meaning(name: str, kind: str) -> Meaning:
    """What a name means for an algorithm; ``kind`` is one of ours."""
    by_kind = NAMES[name]
    found = by_kind.get(kind, by_kind.get(ANY))
    return found or Without(f"only {' and '.join(k for k, m in by_kind.items() if isinstance(m, Ours))} use it")
