#!/usr/bin/env python3
"""Every sentence of the threat model names claims of the tests that stand for it, and they exist.

A sentence ends with an id, README.md; claims.tsv has the claims of each id: CASE is a script below
tests/. What is not protected stands for itself. And the programs without walls have each file that
knows of one.
"""
import pathlib
import re
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here / "../lib"))
import claims  # noqa: E402

text = (here / "README.md").read_text()
promises = text[text.index("\n## What is promised"):text.index("\n## What is not protected")]
promises = "\n".join(line for line in promises.splitlines() if not line.startswith("#"))
checks = []

ids = re.findall(r"\[([A-Z]\d+)\]", promises)
rows = [line.split("\t") for line in (here / "claims.tsv").read_text().splitlines()[1:]]
for name, case, claim in rows:
    checks.append((name in ids and claim != "*" and claims.exists(case, claim),
                   f"{name}: {case} has the claim: {claim}"))
for name in ids:
    checks.append((ids.count(name) == 1 and name in {row[0] for row in rows},
                   f"{name} has claims, and is one sentence's"))

# A sentence that is not followed by its id: a full stop, and then no [.
for sentence in re.findall(r"[^.]*[a-z)`]\.(?=\s)(?!\s*\[)[^\n]*", promises):
    checks.append((False, f"a sentence names what shows it: {' '.join(sentence.split())}"))
for item in re.split(r"^- ", promises, flags=re.M)[1:]:
    checks.append((item.rstrip().endswith("]"),
                   f"an item ends with an id: {' '.join(item.split())[:60]}"))
checks.append((len(ids) > 20 and len(rows) > 100, "the threat model was found"))

meson = (here / "../meson.build").read_text()
weak = re.search(r"^weak = executable\(.*?c_args", meson, re.S | re.M).group(0)
# All of the runner is compiled anew.
runner = re.search(r"^weak_runner = executable\([^)]*runner_main, runner_sources,\s*c_args: "
                   r"'-DSBX_WEAK'", meson, re.M)
for top in ("fs", "backends"):
    for source in sorted((here / "../.." / top).rglob("*.c")):
        name = f"{top}/{source.relative_to(here / '../..' / top)}"
        text = source.read_text()
        knows = "sbx_mitigation_off(" in text or "#ifdef SBX_WEAK" in text
        if knows and source.parent.name in ("isolation", "spawner"):
            checks.append((runner
                           and f"'{source.name}'" in (source.parent / "meson.build").read_text(),
                           f"{name} is compiled anew for the runner without walls, "
                           f"as it knows of one"))
        elif knows or (name in weak and source.name != "main.c"):
            checks.append((knows and f"'../{name}'" in weak,
                           f"{name} is compiled anew for the daemon without walls, "
                           f"as it knows of one"))

for i, (ok, what) in enumerate(checks, 1):
    print(f"{'ok' if ok else 'not ok'} {i} - {what}")
print(f"1..{len(checks)}")
