"""GraphQL as Dagger's clients write it: a parser of one query, its check against the table of
dagger_server_schema.py, and the walk that resolves it."""
import re

import dagger_server_schema as schema

TOKEN = re.compile(r"""[\s,\ufeff]+|\#[^\n]*|(?P<name>[_A-Za-z]\w*)|(?P<number>-?\d+(\.\d+)?)|
    (?P<string>"(?:[^"\\\x00-\x08\x0a-\x1f]|\\["\\/bfnrt]|\\u[0-9A-Fa-f]{4})*")|
    (?P<mark>\.\.\.|[{}()\[\]:$=!|@])""", re.X)
ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class Invalid(Exception):
    """The text is no query, or none of this schema."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code, self.message = code, message


class Failed(Exception):
    """A field has failed."""

    def __init__(self, message, extensions=None):
        super().__init__(message)
        self.message, self.extensions = message, extensions


class Enum(str):
    pass


class Variable(str):
    pass


class Selection:
    """A field; or a fragment, whose name is None."""

    def __init__(self, name, alias, args, children, on=None):
        self.name, self.alias, self.args, self.children, self.on = name, alias, args, children, on


def unquote(text):
    def one(match):
        c = match[1]
        if c[0] == "u":
            unit = int(c[1:], 16)
            return "\ufffd" if 0xd800 <= unit < 0xe000 else chr(unit)
        return ESCAPES.get(c, c)
    return re.sub(r"\\(u....|.)", one, text[1:-1])


def tokens(text):
    at, found = 0, []
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            raise Invalid("GRAPHQL_PARSE_FAILED", f"Unexpected character at {at}")
        at = match.end()
        if match.lastgroup:
            kind = next(k for k in ("name", "number", "string", "mark") if match[k] is not None)
            found.append((kind, match[kind]))
    return found + [("end", "")]


class Parser:
    def __init__(self, text):
        self.tokens, self.at = tokens(text), 0

    def peek(self):
        return self.tokens[self.at][1]

    def take(self, wanted=None):
        kind, text = self.tokens[self.at]
        if wanted not in (None, kind, text) or kind == "end":
            raise Invalid("GRAPHQL_PARSE_FAILED", f"Expected {wanted}, found {text or 'EOF'}")
        self.at += 1
        return text

    def skip(self, text):
        if self.tokens[self.at] != ("mark", text):
            return False
        self.at += 1
        return True

    def document(self):
        variables = {}
        if self.peek() == "query":
            self.take()
            if self.tokens[self.at][0] == "name":
                self.take()
            if self.skip("("):
                while not self.skip(")"):
                    self.take("$")
                    name = self.take("name")
                    self.take(":")
                    variables[name] = self.type()
        chosen = self.selections()
        if self.tokens[self.at][0] != "end":
            raise Invalid("GRAPHQL_PARSE_FAILED", f"Unexpected {self.peek()}")
        return variables, chosen

    def type(self):
        if self.skip("["):
            text = f"[{self.type()}]"
            self.take("]")
        else:
            text = self.take("name")
        return text + ("!" if self.skip("!") else "")

    def selections(self):
        self.take("{")
        chosen = []
        while not self.skip("}"):
            chosen.append(self.selection())
        if not chosen:
            raise Invalid("GRAPHQL_PARSE_FAILED", "expected at least one definition, found }")
        return chosen

    def selection(self):
        if self.skip("..."):
            self.take("on")
            on = self.take("name")
            return Selection(None, None, {}, self.selections(), on)
        name = alias = self.take("name")
        if self.skip(":"):
            name = self.take("name")
        args = {}
        if self.skip("("):
            while not self.skip(")"):
                key = self.take("name")
                self.take(":")
                args[key] = self.value()
        children = self.selections() if self.peek() == "{" else None
        return Selection(name, alias, args, children)

    def value(self):
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "string":
            return unquote(text)
        if kind == "number":
            return float(text) if "." in text else int(text)
        if kind == "name":
            return {"true": True, "false": False, "null": None}.get(text, Enum(text))
        if text == "$":
            return Variable(self.take("name"))
        if text == "[":
            items = []
            while not self.skip("]"):
                items.append(self.value())
            return items
        if text == "{":
            members = {}
            while not self.skip("}"):
                key = self.take("name")
                self.take(":")
                members[key] = self.value()
            return members
        raise Invalid("GRAPHQL_PARSE_FAILED", f"Unexpected {text or 'EOF'}")



# ---- the check ----

def invalid(message):
    raise Invalid("GRAPHQL_VALIDATION_FAILED", message)


class Checker:
    def __init__(self, types, era, declared, given):
        self.types, self.era, self.declared, self.given = types, era, declared, given

    def type_of(self, wanted):
        """As the schema writes it: an id is a scalar there."""
        return re.sub(r"&(\w+)", lambda m: schema.id_scalar(self.era, m[1]), wanted)

    def value(self, value, wanted, where):
        """VALUE with its variables put in; refused where it is none of the type WANTED."""
        if isinstance(value, Variable):
            declared = self.declared.get(value) or invalid(f'Variable "${value}" is not defined.')
            need = self.type_of(wanted)
            if declared.rstrip("!") != need.rstrip("!") or (need[-1] == "!" != declared[-1]):
                invalid(f'Variable "${value}" of type "{declared}" used in position expecting '
                        f'type "{need}".')
            value = self.given.get(value)
        if value is None:
            return invalid(f"{where} may not be null") if wanted.endswith("!") else None
        wanted = wanted.rstrip("!")
        if wanted.startswith("["):
            items = value if isinstance(value, list) else [value]
            return [self.value(item, wanted[1:-1], where) for item in items]
        self.scalar(value, wanted, where)
        return value

    def scalar(self, value, wanted, where):
        if wanted in schema.ENUMS:
            good = isinstance(value, Enum) and value in schema.ENUMS[wanted]
        elif wanted == "Int":
            good = isinstance(value, int) and not isinstance(value, bool)
        elif wanted == "Boolean":
            good = isinstance(value, bool)
        else:
            good = isinstance(value, str) and not isinstance(value, Enum)
        if not good:
            invalid(f"{where} is no {self.type_of(wanted)}")

    def arguments(self, chosen, field, of):
        where = f'Field "{of}.{chosen.name}"'
        for name in chosen.args:
            if name not in field.args:
                invalid(f'Unknown argument "{name}" on field "{of}.{chosen.name}".')
        made = {}
        for name, wanted in field.args.items():
            if name in chosen.args:
                made[name] = self.value(chosen.args[name], wanted, f"{where} argument {name}")
            elif wanted.endswith("!"):
                invalid(f'{where} argument "{name}" of type "{self.type_of(wanted)}" is required, '
                        "but it was not provided.")
        chosen.args = made

    def selections(self, chosen, of):
        for one in chosen:
            if one.name is None:
                if one.on not in self.types:
                    invalid(f'Unknown type "{one.on}".')
                self.selections(one.children, one.on)
                continue
            if one.name == "__typename":
                continue
            field = self.types.get(of, {}).get(one.name)
            if not field:
                invalid(f'Cannot query field "{one.name}" on type "{of}".')
            self.arguments(one, field, of)
            made = schema.bare(field.made)
            if (made in self.types or made == "Node") != bool(one.children):
                invalid(f'Field "{one.name}" of type "{field.made}" must '
                        f"{'not ' if one.children else ''}have a selection of subfields.")
            if one.children:
                self.selections(one.children, made)


def check(text, variables, era, types):
    """The selections of the query TEXT, with all arguments put in."""
    declared, chosen = Parser(text).document()
    for name, wanted in declared.items():
        if wanted.endswith("!") and variables.get(name) is None:
            invalid(f'Variable "${name}" is missing')
    Checker(types, era, declared, variables).selections(chosen, "Query")
    return chosen


# ---- the walk ----

def resolve(chosen, value, ask):
    """ask(VALUE, FIELD, ARGS) has the type of its result in the attribute type, if it has any."""
    made = {}
    for one in chosen:
        if one.name is None:
            if one.on == value.type:
                made.update(resolve(one.children, value, ask))
            continue
        result = value.type if one.name == "__typename" else ask(value, one.name, one.args)
        if one.children and isinstance(result, list):
            result = [resolve(one.children, item, ask) for item in result]
        elif one.children and result is not None:
            result = resolve(one.children, result, ask)
        made[one.alias] = result
    return made


def fields_of(chosen):
    """The names of all fields that are asked for."""
    for one in chosen:
        if one.name:
            yield one.name
        yield from fields_of(one.children or [])
