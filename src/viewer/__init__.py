"""What people look at. Reads snapshots, and nothing else of ours."""
