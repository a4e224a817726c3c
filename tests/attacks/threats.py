#!/usr/bin/env python3
"""Every sentence of README's threat model names claims of the tests that stand for it, and they exist.

The names stand in a comment after the sentence: <!-- CASE: CLAIM; CASE: CLAIM -->, a CASE being one of
tests/attacks, or of tests/mount as mount/CASE. What is said not to be
protected, and what the tests are, stands for itself. And the programs without walls have each file that knows of one.
"""
import pathlib
import re
import sys

here = pathlib.Path(__file__).resolve().parent
text = (here / "../../README.md").read_text()
section = re.search(r"^## Threat model\n(.*?)^## ", text, re.S | re.M).group(1)
promises = section[section.index("- **"):section.index("Not protected:")]
promises = re.sub(r"^What is in force.*$", "", promises, flags=re.M)
checks = []

for name in re.findall(r"<!-- (.*?) -->", promises, re.S):
    for item in re.split(r";\s", name):
        case, claim = item.split(": ", 1)
        script = here / ".." / (case if "/" in case else f"attacks/{case}")
        script = script.with_suffix(".sh")
        known = script.read_text() if script.exists() else ""
        checks.append((f'"{claim}"' in known, f"{case} has the claim: {claim}"))

# A sentence that is not followed by its claims: a full stop, and then no comment.
for sentence in re.findall(r"[^.|]*[a-z)]\.(?=\s)(?!\s*<!--)[^\n]*", re.sub(r"\*\*[^*]*\*\*", "", promises)):
    checks.append((False, f"a sentence names what shows it: {' '.join(sentence.split())}"))
checks.append((len(checks) > 20, "the threat model was found"))

meson = (here / "../meson.build").read_text()
weak = re.search(r"^weak = executable\(.*?c_args", meson, re.S | re.M).group(0)
# All of the runner is compiled anew.
runner = re.search(r"^weak_runner = executable\([^)]*runner_main, runner_sources,\s*c_args: '-DSBX_WEAK'", meson, re.M)
for top in ("fs", "backends"):
    for source in sorted((here / "../.." / top).rglob("*.c")):
        name = f"{top}/{source.relative_to(here / '../..' / top)}"
        knows = "sbx_without(" in source.read_text() or "#ifdef SBX_WEAK" in source.read_text()
        if knows and source.parent.name in ("isolation", "spawner"):
            checks.append((runner and f"'{source.name}'" in (source.parent / "meson.build").read_text(),
                           f"{name} is compiled anew for the runner without walls, as it knows of one"))
        elif knows or (name in weak and source.name != "main.c"):
            checks.append((knows and f"'../{name}'" in weak,
                           f"{name} is compiled anew for the daemon without walls, as it knows of one"))

for i, (ok, what) in enumerate(checks, 1):
    print(f"{'ok' if ok else 'not ok'} {i} - {what}")
print(f"1..{len(checks)}")
