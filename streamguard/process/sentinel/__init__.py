"""Host death: what was adopted ends with this program, however that ends, or at its deadline.

sentinel    `sentinel()`, for users
client      this program's end: starts the helper and tells it in short messages
helper      the process that waits for this program's end, and ends what it left
endings     ends of trees side by side, while the helper listens
wire        the messages between the two
forest      several trees as one
"""
