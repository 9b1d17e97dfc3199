"""What lives in the rank: hooks write events to the ring, one thread sends them."""
