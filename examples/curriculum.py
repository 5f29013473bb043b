"""Train in two phases: first an easier env, then the real one. Evaluations always play the real one.

docs/phases.md explains phases, and what one passes on to the next.
"""

import reverie

STEPS = 80_000


def phase(name, steps, **more):
    hooks = [{"collect": {"rows": 2048}}, {"update": {}}, {"evaluate": {"episodes": 10, "every_cycles": 2}}]
    return {"name": name, "hooks": hooks, "duration_steps": steps, **more}


phases = [
    phase("weak_gravity", STEPS // 2, overrides={"env.kwargs.g": 5.0}),
    phase("real", STEPS // 2),
]
run = reverie.train("Pendulum-v1:ppo", seed=1, overrides={"env.kwargs.g": 10.0, "phases": phases})
for line in run.metrics():
    if "evaluate/return_mean" in line:
        print(f"{line['phase']:<14}{line['env_steps']:>8,} env steps: {line['evaluate/return_mean']:8.1f}")
