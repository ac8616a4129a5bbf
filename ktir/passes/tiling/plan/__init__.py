"""What a divided kernel is, and how it is tiled: data, which the files above write as KTIR."""
