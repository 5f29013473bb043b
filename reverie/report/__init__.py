"""Reports: what a run folder tells, as one page for people. Reads files only; never torch, never code of a run."""
