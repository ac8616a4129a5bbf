"""KTIR -> KTIR, one folder per stage; `ktir_to_allocated` lists them in order. A file `ktir_x_y.py` is the pass `ktir-x-y`, others help."""
