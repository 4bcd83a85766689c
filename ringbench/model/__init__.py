"""Why the numbers are as they are: fits of the message-cost model, and comparisons with intervals."""
