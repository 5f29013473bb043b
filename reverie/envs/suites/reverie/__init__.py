"""Reverie's own tiny envs, for tests, demonstrations and debugging. The best return of each is known.

``Reverie/Counting-v0``  observations contain the episode, the step and the last action, so tests can verify rows
``Reverie/Motion-v0``    an image task that cannot be solved from one frame; the best return is 31
``Reverie/Constant-v0``  reward 1 at every step until a time limit; the value of each state is 1 / (1 - gamma)
``Reverie/Recall-v0``    recall a cue that was shown some steps ago; needs an agent with a hidden state
"""

from __future__ import annotations

from reverie.envs.suite import KeyMap, Registration, Suite

_HERE = "reverie.envs.suites.reverie"

SUITE = Suite(
    name="reverie",
    title="Reverie's own envs",
    prefixes=("Reverie/",),
    example="Reverie/Motion-v0",
    modules=(_HERE,),
    envs={
        "Reverie/Counting-v0": Registration(f"{_HERE}.counting:CountingEnv", 10_000),
        "Reverie/Motion-v0": Registration(f"{_HERE}.motion:MotionEnv", 32),
        "Reverie/Constant-v0": Registration(f"{_HERE}.constant:ConstantRewardEnv", 20),
        "Reverie/Recall-v0": Registration(f"{_HERE}.recall:RecallEnv", 1000),
    },
    keys={"Reverie/Motion": KeyMap({"left": 0, "right": 1})},
)
