"""Wrappers that a config can name, in files by what they change. Each is built as ``Wrapper(env, config)``.

``env.wrappers`` lists them, innermost first. A wrapper that finds nothing to change is a mistake in the config and
raises a ConfigError. Observations and rewards are not scaled here but by the run's normaliser, which evaluation and
exported policies share.
"""
