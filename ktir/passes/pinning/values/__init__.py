"""What the tensors of a pinned kernel are: trees over elements, views of memory, and the dims that lie in sticks and rows."""
