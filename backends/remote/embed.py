"""
Makes a C string of the runner's parts, without comments and indentation: embed.py OUT IN...
Fails where two parts have a function of the same name, as the later one would replace the other.
"""
import re
import sys

out, parts = sys.argv[1], sys.argv[2:]
text = ""
owner = {}
for name in parts:
    with open(name, encoding="utf-8") as f:
        for line in f:
            line = line.strip("\t\n")
            if line and not line.startswith("#"):
                text += line + "\n"
            function = re.match(r"(\w+)\(\)", line)
            if function and owner.setdefault(function[1], name) != name:
                sys.exit(f"{name}: {function[1]} is a function of {owner[function[1]]} already")
with open(out, "w", encoding="utf-8") as f:
    f.write('#include "backends/remote/call.h"\n\nconst char remote_runner[] =\n')
    for line in text.splitlines():
        for odd in '\\"?':
            line = line.replace(odd, "\\" + odd)
        f.write(f'\t"{line}\\n"\n')
    f.write("\t;\n")
