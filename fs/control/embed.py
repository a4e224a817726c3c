#!/usr/bin/env python3
"""
Writes a C source that defines each text file as a string.

  embed.py OUTPUT SYMBOL=FILE...
"""
import sys


def literal(line):
    escaped = line.replace("\\", "\\\\").replace('"', '\\"').replace("?", "\\?")
    return '\t"' + escaped.replace("\n", "\\n") + '"\n'


output, *texts = sys.argv[1:]
with open(output, "w", encoding="utf-8") as out:
    out.write('#include "fs/control/control.h"\n')
    for symbol, path in (text.split("=", 1) for text in texts):
        with open(path, encoding="utf-8") as lines:
            out.write(f"\nconst char {symbol}[] =\n{''.join(map(literal, lines)).rstrip()};\n")
