"""`gputally top`: GPUs and their users in a terminal.

A source answers a query with a page, which has no more than the screen shows; `board` turns a page into lines
of text; `screen` shows them. Only `screen` needs the library of the extra `gputally[top]`.
"""
