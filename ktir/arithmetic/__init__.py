"""What numbers do, for every engine alike: formats and rounding, sums of products, elementary functions, integers."""
