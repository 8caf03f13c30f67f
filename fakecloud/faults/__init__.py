"""Faults on order: the rules (pure), and the faults that are in force."""
