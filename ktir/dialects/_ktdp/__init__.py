"""The ops, types and attributes of `ktdp`, by what they are about; `ktdp` beside this folder is the whole dialect."""
