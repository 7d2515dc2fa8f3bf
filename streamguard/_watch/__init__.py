"""What time means for one stream: when silence is too long. No clock, no wait, no input or output."""
