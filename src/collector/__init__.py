"""What lives on the node: the daemon that takes in events, samples GPUs and processes, and publishes."""
