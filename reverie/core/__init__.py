"""What every other package uses: types, specs, contracts, configs, counters, random streams."""
