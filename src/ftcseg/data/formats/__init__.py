"""One small reader per layout.

Each module offers

can_read(root) -> bool      a quick look: is this folder laid out like this?
records(root) -> Found      every image below the root, with its mask reference and what the format says of classes

and, where masks are drawn from annotations, `draw(root, ref, shape) -> Labels`.
Readers only list and parse; they never decode a picture. Paths that come out of a file go through `files.inside`.
"""
