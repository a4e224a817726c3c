"""
The claims that the tests make: that a text names CASE: CLAIM is worth as much as that they exist.
"""
import pathlib

TESTS = pathlib.Path(__file__).resolve().parent.parent


def script_of(case):
    """The file of SUITE/NAME: a shell script, or unit/FOLDER/NAME, which is a C program."""
    if case.startswith("unit/"):
        folder, name = case.rsplit("/", 1)
        return TESTS / folder / f"test_{name}.c"
    return TESTS / f"{case}.sh"


def exists(case, claim):
    """Whether the case makes the claim; * is any."""
    script = script_of(case)
    if not script.is_file():
        return False
    text = script.read_text(encoding="utf-8")
    return claim == "*" or any(quote + claim + quote in text for quote in "\"'")
