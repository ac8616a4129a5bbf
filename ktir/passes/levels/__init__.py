"""What each level is: sets of ops, rules per op, and the pass that holds a module against them."""
