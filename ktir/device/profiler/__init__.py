"""The device in `torch.profiler`: kernels, copies and memory of the cards beside the events of the host."""
