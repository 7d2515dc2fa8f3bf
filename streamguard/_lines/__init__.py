"""A process's output as a stream of lines or JSON objects: `lines()`, `json_lines()`."""
