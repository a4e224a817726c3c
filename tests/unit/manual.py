#!/usr/bin/env python3
"""
The texts of the project, and whether they say what is so.

  manual.py SANDBOXFS COMPLETION
"""
import pathlib
import re
import shutil
import subprocess
import sys

top = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(top / "tests/lib"))
import claims  # noqa: E402

PAGES = [top / "fs/config/sandboxfs.1", top / "fs/control/sandboxfs-tree.5", top / "fs/sandboxfs.7"]
TEXTS = PAGES + [top / name for name in (
    "README.md", "NEWS", "fs/README.md", "tests/attacks/README.md", "tests/bench/README.md",
    ".github/SECURITY.md", ".github/CONTRIBUTING.md", ".github/PULL_REQUEST_TEMPLATE.md")]
TEXTS += [path for folder in ("fs/control/mnt", ".github/ISSUE_TEMPLATE")
          for path in sorted((top / folder).iterdir())]
# What is told of elsewhere, or is no promise.
UNPROVED = {"NAME", "DESCRIPTION", "COSTS", "CAVEATS", "SECURITY", "EXAMPLES", "SEE ALSO"}
done = 0


def say(good, what, why=""):
    global done
    done += 1
    for line in filter(None, str(why).splitlines()):
        print(f"# {line}")
    print(f"{'ok' if good else 'not ok'} {done} - {what}")


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def described():
    """The items of OPTIONS: name to text."""
    section = PAGES[0].read_text().split("\n.Sh OPTIONS\n")[1].split("\n.Sh ")[0]
    items = {}
    for text in section.split("\n.It ")[1:]:
        head = text.split("\n")[0]
        name = re.match(r"(?:Fl -|Cm )([a-z_-]+)", head)
        if name:
            items[name.group(1)] = text
    return items


def helped():
    names = set()
    for line in output(sys.argv[1], "--help").splitlines():
        name = re.match(r"  (?:--)?([a-z][a-z_-]+)(?:=\S+)?(?: |$)", line)
        if name:
            names.add(name.group(1))
    return names


def same_options():
    items, names = described(), helped()
    say(len(names) > 40, "--help has the options")
    say(not names - items.keys(), "every option of --help is in sandboxfs(1)",
        sorted(names - items.keys()) or "")
    say(not items.keys() - names, "every option of sandboxfs(1) is in --help",
        sorted(items.keys() - names) or "")
    values = re.findall(r"^\t([a-z_]+)\) values=\$'(.*)' ;;$", output(sys.argv[2], "bash"), re.M)
    missing = [f"{key}={word}" for key, words in values for word in words.split("\\n")
               if not re.search(rf"^\.Cm (.* )?{word}\b", items.get(key, ""), re.M)]
    say(len(values) > 5 and not missing, "and so is every word that a key takes",
        "\n".join(missing))


def proved():
    """Each paragraph of sandboxfs(7) ends with what shows it."""
    page = PAGES[2].read_text()
    bare, wrong, found = [], [], 0
    for section in page.split("\n.Sh ")[1:]:
        name, text = section.split("\n", 1)
        if name in UNPROVED:
            continue
        for part in re.split(r"^\.(?:It|Pp|Ss|Bl|El)\b.*\n?", text, flags=re.M):
            lines = part.strip().splitlines()
            named = [line[4:] for line in lines if line.startswith('.\\" ')]
            found += len(named)
            if lines and not lines[-1].startswith('.\\" '):
                bare.append(f"{name}: {lines[0]}")
            wrong += [claim for claim in named if not claims.exists(*claim.split(": ", 1))]
    say(found > 50 and not bare, "every paragraph of sandboxfs(7) names what shows it",
        "\n".join(bare))
    say(not wrong, "and that is there", "\n".join(wrong))


def linted():
    if not shutil.which("mandoc"):
        print("# mandoc is not installed: the pages are not checked")
        return
    for page in PAGES:
        said = output("mandoc", "-Tlint", "-Wwarning", str(page))
        say(not said, f"mandoc finds nothing in {page.name}", said)


def narrow():
    wide = [f"{path.relative_to(top)}:{n}" for path in TEXTS
            for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            if len(line) > 100 and not line.startswith('.\\"')]
    say(not wide, "no line of a text has more than 100 columns", "\n".join(wide))


same_options()
proved()
linted()
narrow()
print(f"1..{done}")
