"""What runs on the cards at this moment, for other processes to see: metric files in the published form, their reader, samples of them.

Nothing here needs torch, and a reader needs neither NumPy nor the emulator.
"""
