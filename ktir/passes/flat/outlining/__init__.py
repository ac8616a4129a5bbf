"""What comes again and again in a program: found, and what all of it computes alike taken out."""
