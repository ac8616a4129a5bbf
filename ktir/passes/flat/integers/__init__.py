"""Which integers a program can take on the 32 bits of the device: intervals, the proof, and the change of types."""
