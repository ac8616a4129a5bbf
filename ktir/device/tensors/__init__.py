"""Tensors on the cards of this process: their storages, which card is meant, what is counted, random numbers."""
