"""How long models of real sizes take on the modelled chip: a plan in YAML, a table of times with their bounds, two tables compared.

Weights are not made: what a launch costs follows from its program alone.
"""
