"""Pictures of programs on the chip, drawn with matplotlib: each module draws one kind and gives the figure."""
