"""What is known of a kernel before it is traced or run: arguments, what it reads from around it, element types, where mistakes are."""
