"""PyTorch's tests on a device, steered by YAML files (RFC 1287), and operators as models use them, compared with the host (RFC 0186)."""
