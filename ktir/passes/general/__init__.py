"""Passes for any level: folds, inlining, renewal of old text, legality of exchanges."""
