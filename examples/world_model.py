"""Train a world model with DreamerV3, and measure how far ahead it predicts.

Takes some minutes. The preset of CartPole has small networks; docs/dreamer.md has the sizes for images.
"""

import reverie

STEPS = 4_000

run = reverie.train("CartPole-v1:dreamer", seed=1, steps=STEPS, quiet=False)
print("best score:", run.status["best_score"])

errors = reverie.foresee(run, steps=20)  # open-loop predictions on fresh episodes; also writes figures
for name, value in errors.items():
    print(f"{name}: {value}")
