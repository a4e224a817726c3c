"""Counts single cases over a whole run: summary.py testlog.json. Prints the failed ones, then
`N passed, N failed`; exits 1 when something failed or nothing ran."""
import json
import re
import sys

passed = failed = skipped = 0
for line in open(sys.argv[1], encoding="utf-8", errors="replace"):
    test = json.loads(line)
    out = test.get("stdout") or ""
    good = len(re.findall(r"^ok\b", out, re.M))
    bad = re.findall(r"^not ok\b.*", out, re.M)
    skipped += bool(re.search(r"^1\.\.0", out, re.M))
    passed += good
    failed += len(bad)
    for text in bad:
        print(f"{test['name']}: {text}")
    if test["result"] not in ("OK", "SKIP", "EXPECTEDFAIL") and not bad:
        failed += 1
        print(f"{test['name']}: {test['result']}")
if skipped:
    print(f"{skipped} programs skipped as a whole")
print(f"{passed} passed, {failed} failed")
sys.exit(0 if passed and not failed else 1)
