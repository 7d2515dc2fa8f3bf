"""Host death: what was adopted ends with this program, however that ends.

sentinel    `sentinel()`, for users
client      this program's end: starts the helper and tells it in short messages
helper      the process that waits for this program's end, and ends what it left
wire        the messages between the two
forest      several trees as one
"""
