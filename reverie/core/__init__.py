"""The words that every other package speaks: types, specs, contracts, config, counters, random streams."""
