"""Which operators and modules of a model work on the device: found in the model, run one by one, told by published rules (RFC 0186, 1632,
1682, 2834).

`record` finds the calls, `run` compares each with the host, `outcomes` holds what came out and its rules, `page` draws it.
"""
