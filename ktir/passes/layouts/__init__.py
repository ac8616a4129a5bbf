"""Third stage. Expects flat KTIR; guarantees the laid-out level: sticks, padding, masks, and arguments as the device has them."""
