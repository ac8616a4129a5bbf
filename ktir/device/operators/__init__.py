"""What is computed on tensors of the device: by hand-written kernels, by programs of the chip, or by the host with a warning."""
