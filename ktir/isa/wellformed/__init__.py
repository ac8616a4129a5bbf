"""What a well-formed program is (`rules`), and the verifier that holds programs against it."""
