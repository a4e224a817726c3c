"""Makes a C string of the runner's parts, without comments and indentation: embed.py OUT IN..."""
import sys

out, parts = sys.argv[1], sys.argv[2:]
text = ""
for name in parts:
    with open(name, encoding="utf-8") as f:
        for line in f:
            line = line.strip("\t\n")
            if line and not line.startswith("#"):
                text += line + "\n"
with open(out, "w", encoding="utf-8") as f:
    f.write('#include "backends/remote/call.h"\n\nconst char remote_runner[] =\n')
    for line in text.splitlines():
        for odd in '\\"?':
            line = line.replace(odd, "\\" + odd)
        f.write(f'\t"{line}\\n"\n')
    f.write("\t;\n")
