//! Runs a collective on an engine, verifies, times and fits it.
