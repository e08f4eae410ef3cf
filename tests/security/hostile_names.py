"""Names that strangers give to classes, files and runs to see what happens."""

from __future__ import annotations

SCRIPT = "<script>alert(1)</script>"
BREAKOUT = "\"><img src=x onerror=alert(1)>'"
ADDRESS = "javascript:alert(1)"
TURNED = "tire\u202egnp.exe\u2066"  # shown from right to left, it would end in .png
CONTROLS = "\x1b[31mred\x1b]8;;http://x.example\x07link\x9b2J\x00\x08"
MARKUP = "[red]rich[/] [link=http://x.example]here[/link] [bold"
HALF = "half\ud83d"  # of a character; JSON can hold it and no file
TEX = "50%_of & \\input{/etc/passwd} $x^2$ #1 {~}"
NAMES = (SCRIPT, BREAKOUT, ADDRESS, TURNED, CONTROLS, MARKUP, HALF, TEX)
