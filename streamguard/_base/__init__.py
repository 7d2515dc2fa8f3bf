"""What every room may use and what itself knows no room: words, numbers, files that can be trusted."""
