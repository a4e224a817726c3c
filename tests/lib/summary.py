"""Counts single cases over a whole run: summary.py testlog.json. Prints what the failed programs
said, then the failed cases, then `N passed, N failed`; exits 1 when something failed or nothing
ran."""
import json
import re
import sys

LINES = 40


def said(test):
    """Its last words on what failed: `not ok` with the lines that stand next to it, or
    all when no case failed."""
    out = test.get("stdout") or ""
    pieces = re.split(r"^((?:not )?ok\b.*\n?)", out, flags=re.M)
    words = ""
    for i, piece in enumerate(pieces):
        near = pieces[i:i + 1] if i % 2 else pieces[max(i - 1, 0):i + 2]
        if any(line.startswith("not ok") for line in near):
            words += piece
    lines = (words or out).splitlines() + (test.get("stderr") or "").splitlines()
    return [line for line in lines if line and not re.fullmatch(r"\d+\.\.\d+", line)][-LINES:]


def main():
    passed = failed = skipped = 0
    told, verdicts = [], []
    for line in open(sys.argv[1], encoding="utf-8", errors="replace"):
        test = json.loads(line)
        out = test.get("stdout") or ""
        good = len(re.findall(r"^ok\b", out, re.M))
        bad = re.findall(r"^not ok\b.*", out, re.M)
        skipped += bool(re.search(r"^1\.\.0", out, re.M))
        passed += good
        failed += len(bad)
        verdicts += [f"{test['name']}: {text}" for text in bad]
        ended_well = test["result"] in ("OK", "SKIP", "EXPECTEDFAIL")
        if not ended_well and not bad:
            failed += 1
            verdicts.append(f"{test['name']}: {test['result']}")
        if bad or not ended_well:
            told += [f"--- {test['name']} said:"] + said(test)
    for text in told + verdicts:
        print(text)
    if skipped:
        print(f"{skipped} programs skipped as a whole")
    print(f"{passed} passed, {failed} failed")
    sys.exit(0 if passed and not failed else 1)


main()
