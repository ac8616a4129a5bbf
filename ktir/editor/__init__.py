"""What an editor asks about KTIR: functions on text, one file per question, and the language server that answers with them.

`text` finds functions and names in text of any state, `check` what is wrong in it, `hover` and `completion` say what stands or may stand at
a place, `docs` is the table of what there is. `worker` runs the check in a process of its own, `server` speaks the protocol; it alone needs
pygls.
"""
