"""Train an agent, look at its scores, and let it act."""

import gymnasium as gym

import reverie

STEPS = 100_000

run = reverie.train("CartPole-v1:ppo", seed=1, steps=STEPS, overrides={"algorithm.gamma": 0.98}, quiet=False)
print("folder:", run.path)
print("best score:", run.status["best_score"], "final score:", run.status["final_score"])

agent = reverie.load(run)  # the best policy; which="final" loads the last one
scores = agent.evaluate(episodes=20)
print("mean return:", scores["return_mean"])

env = gym.make("CartPole-v1")
observation, _ = env.reset(seed=0)
agent.reset()
total, ended = 0.0, False
while not ended:
    observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
    total, ended = total + reward, terminated or truncated
print("return of one episode:", total)
