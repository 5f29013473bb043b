"""Train on an env of your own: any class with the methods of a Gymnasium env.

`reverie new env NAME` makes a project with such a class, a preset and a test.
"""

import gymnasium as gym
import numpy as np

import reverie

STEPS = 10_000


class Catch(gym.Env):
    """A ball falls from the top of a board. Move the paddle below it."""

    action_space = gym.spaces.Discrete(3)  # left, stay, right

    def __init__(self, size=8):
        self.size = size
        self.observation_space = gym.spaces.Box(0, 1, (3,), np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)  # draw only from self.np_random: equal seeds give equal episodes
        self.height = self.size
        self.ball, self.paddle = self.np_random.integers(self.size, size=2)
        return self.observe(), {}

    def step(self, action):
        self.height -= 1
        self.paddle = int(np.clip(self.paddle + action - 1, 0, self.size - 1))
        has_landed = self.height == 0
        reward = float(self.paddle == self.ball) if has_landed else 0.0
        return self.observe(), reward, has_landed, False, {}

    def observe(self):
        return np.array([self.height, self.ball, self.paddle], np.float32) / self.size


run = reverie.train(Catch, seed=1, steps=STEPS, overrides={"env.num_envs": 8, "phases.learn.collect.rows": 512})
print("balls caught:", run.agent().evaluate(episodes=100)["return_mean"])
