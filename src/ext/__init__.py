"""The compiled hot path: the ring and what writes to it (`_events`), and the folding of events (`_timeline`)."""
