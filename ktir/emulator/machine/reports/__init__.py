"""What a run took, for people: cycles, rooflines, timelines, occupancy of LX."""
