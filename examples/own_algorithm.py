"""Write an algorithm: a class that acts on rows and learns from batches. Here: the policy gradient on whole episodes.

Collecting, evaluating, logging, saving and exact resume come with the lab. docs/own_algorithm.md explains the parts;
`reverie new algorithm NAME` makes a project with such a class, a preset and a test.
"""

import torch
from torch import nn

import reverie
from reverie.backend import load_module_state, module_state, seeded
from reverie.core.config import ComponentConfig
from reverie.core.contracts import Traits
from reverie.core.reads import Episodes
from reverie.core.types import Mode, Update, is_last
from reverie.data.rows import transitions
from reverie.functional.losses import weighted_mean
from reverie.functional.returns import discounted_return
from reverie.nets.optim import Adam

STEPS = 40_000


class PolicyGradient:
    class Config(ComponentConfig):
        kind: str = "__main__.PolicyGradient"
        learning_rate: float = 5e-3
        """Step size of the optimiser."""
        gamma: float = 0.98
        """Discount: weight of a reward one step later."""

    traits = Traits(actions=("discrete",), on_policy=True)

    def __init__(self, config, specs, rng, backend):
        self.config, self.backend = config, backend
        self.reads = {"update": Episodes()}  # what the hook `update` gets: whole episodes
        with seeded(rng):  # initial weights follow from the run's seed
            inputs, (actions,) = specs.observations["obs"].size, specs.action.classes
            self.policy = nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, actions))
        self.optimizer = Adam(Adam.Config(), self.policy.parameters())

    def initial_carry(self, num_envs):
        return {}  # no hidden state

    def act(self, now, carry, clock, rng, mode):
        with torch.no_grad():
            logits = self.policy(self.backend.to_tensor(now["obs"])).numpy()  # (N, actions)
        if mode is Mode.COLLECT:
            logits = logits + rng.gumbel(size=logits.shape)  # the largest of these is a sample of the policy
        return logits.argmax(-1), carry, {}

    def update(self, batch, clock, rng):
        now, then, weight = transitions(self.backend.to_tensors(batch))  # (E, T); weight is 0 after an episode's end
        returns = discounted_return(then["reward"], then["terminated"], is_last(then), weight, self.config.gamma)
        advantage = returns - weighted_mean(returns, weight)
        log_prob = torch.distributions.Categorical(logits=self.policy(now["obs"])).log_prob(now["action"])
        loss = -weighted_mean(log_prob * advantage, weight)
        self.optimizer.step(loss, self.config.learning_rate)
        return Update({"loss": loss.detach()})

    def policy_state(self):  # what acting needs
        return module_state(self.policy)

    def load_policy_state(self, state):
        load_module_state(self.policy, state)

    def state(self):  # what resuming needs
        return {"policy": self.policy_state(), "optimizer": self.optimizer.state()}

    def load_state(self, state):
        self.load_policy_state(state["policy"])
        self.optimizer.load_state(state["optimizer"])


hooks = [{"collect": {"episodes": 8}}, {"update": {}}, {"evaluate": {"episodes": 10, "every_steps": 10_000}}]
settings = {
    "env.num_envs": 8,
    "buffers": {"main": {"kind": "rollout"}},
    "phases": [{"name": "learn", "hooks": hooks, "duration_steps": STEPS}],
}
run = reverie.train("CartPole-v1", algorithm=PolicyGradient, seed=1, overrides=settings)
print("final score:", run.status["final_score"])
