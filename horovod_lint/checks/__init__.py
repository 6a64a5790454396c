"""The checks: one small module for each matter, each a function from a view of a script to findings."""
