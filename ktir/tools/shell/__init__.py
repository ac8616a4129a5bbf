"""What shells are told about the tools."""
