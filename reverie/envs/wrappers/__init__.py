"""Wrappers for ``env.wrappers``, which lists them innermost first. Each is built as ``Wrapper(env, config)``.

A wrapper that finds nothing to change raises a ConfigError. Observations and rewards are not scaled here but by the
run's normaliser, which evaluation and exported policies share.
"""
