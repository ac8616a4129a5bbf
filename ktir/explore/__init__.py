"""One page that shows what becomes of a program: its source, its graph, KTIR after each pass, its instructions, and when they run.

It imports what compiles and runs, and gathers what these report; it finds out nothing by itself.
"""
