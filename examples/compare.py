"""Is a setting better? Train some seeds of both, compare them, and put the result into a paper.

`reverie compare ... --run-until-decided` trains as many seeds as the decision takes.
"""

import reverie

STEPS = 10_000
SEEDS = (1, 2, 3, 4, 5)

runs = [
    reverie.train("CartPole-v1:ppo", seed=seed, steps=STEPS, overrides={"algorithm.learning_rate": rate})
    for rate in (1e-3, 1e-5)
    for seed in SEEDS
]
compared = reverie.compare(*runs, out="comparison.html")
for env in compared.envs:
    for verdict in compared.verdicts(env):
        print(verdict.sentence())
    for warning in compared.warnings(env):
        print("Note:", warning)

table = reverie.export(*runs, format="latex")
print(table.text)
