"""The cost model: what a kernel takes on the machine, and the divisions of work that it prefers.

`problem` describes one op by its loops and operands, `estimate` prices it under one division, `division` finds the best one. Every result
can be explained: its terms, what bounds it, the runner-up.
"""
