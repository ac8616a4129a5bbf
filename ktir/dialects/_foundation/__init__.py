"""What dialects are declared with: ops, types and attributes with their text, boxes and affine expressions."""
