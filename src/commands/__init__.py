"""A module per subcommand."""
