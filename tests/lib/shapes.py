"""Shapes of JSON values, for the loopback servers: what a request may have, and what an answer has
to have; and the operations of an API, compared with its OpenAPI document.

A type is str, bool, int, float, MAP (of strings), a set of words, [TYPE], a dictionary of members,
Maybe(TYPE), which may be null, Range(LEAST, MOST) of whole numbers, OneOf(TYPE...), or ANY. A
member that ends with "?" may be left out.
"""
import collections
import re

MAP = "map of strings"
ANY = "anything"
Maybe = collections.namedtuple("Maybe", "type")
Range = collections.namedtuple("Range", "least most")
Operation = collections.namedtuple("Operation", "method path query body status answer",
                                   defaults=(None, None, 200, None))


class OneOf:
    def __init__(self, *types):
        self.types = types


def find(table, method, path):
    """The name of the operation and the words of the path that stand for {}; or None."""
    for name, op in table.items():
        match = re.fullmatch(op.path.replace("{}", "([^/]+)"), path)
        if match and op.method == method:
            return name, match.groups()
    return None


def wrong(value, want, where="it"):
    """What is wrong with VALUE, or None."""
    if want is ANY:
        return None
    if isinstance(want, Maybe):
        return None if value is None else wrong(value, want.type, where)
    if isinstance(want, OneOf):
        found = [wrong(value, kind, where) for kind in want.types]
        return None if None in found else found[0]
    if isinstance(want, Range):
        good = type(value) is int and want.least <= value <= want.most
        return None if good else f"{where} is {value!r:.60}"
    if want is float:
        want = (int, float)
    if isinstance(want, (type, tuple)):
        good = isinstance(value, want) and isinstance(value, bool) == (want is bool)
        return None if good else f"{where} is {value!r:.60}"
    if isinstance(want, set):
        return None if value in want else f"{where} is {value!r:.60}"
    if isinstance(want, list):
        if not isinstance(value, list):
            return f"{where} is no list"
        found = (wrong(v, want[0], f"{where}[{i}]") for i, v in enumerate(value))
        return next(filter(None, found), None)
    if not isinstance(value, dict):
        return f"{where} is no object"
    if want is MAP:
        found = (wrong(v, str, f"{where}.{k}") for k, v in value.items())
        return next(filter(None, found), None)
    return wrong_members(value, want, where)


def wrong_members(value, want, where):
    known = {name.rstrip("?"): (kind, name.endswith("?")) for name, kind in want.items()}
    for name in value:
        if name not in known:
            return f"{where} should NOT have additional property `{name:.60}`"
    for name, (kind, optional) in known.items():
        if name not in value:
            if not optional:
                return f"{where} has no {name}"
        elif complaint := wrong(value[name], kind, f"{where}.{name}"):
            return complaint
    return None


def wrong_query(query, want):
    """QUERY: pairs of a name and a text."""
    known = {name.rstrip("?"): kind for name, kind in want.items()}
    for name, text in query:
        kind = known.get(name)
        if not kind:
            return f"the query has {name}, which nobody knows"
        value = int(text) if text.isdigit() and isinstance(kind, Range) else text
        if kind is bool and text not in ("true", "false") or \
           kind is not bool and wrong(value, kind):
            return f"the query's {name} is {text!r:.60}"
    missing = {name for name in want if not name.endswith("?")} - {name for name, _ in query}
    return f"the query has no {missing.pop()}" if missing else None


# ---- comparing with a document ----

KINDS = {str: {"string"}, bool: {"boolean"}, int: {"integer"}, float: {"number", "integer"}}


class Document:
    """An OpenAPI document, version 3."""

    def __init__(self, doc):
        self.doc = doc

    def follow(self, schema):
        while "$ref" in schema:
            found = self.doc
            for word in schema["$ref"].split("/")[1:]:
                found = found[word]
            schema = found
        return schema

    def operation(self, op):
        for path, methods in self.doc["paths"].items():
            if re.sub(r"\{[^}]*\}", "{}", path) == op.path:
                return methods.get(op.method.lower())
        return None

    def json(self, holder):
        return holder.get("content", {}).get("application/json", {}).get("schema")

    def kinds(self, schema):
        kind = schema.get("type", "string" if "const" in schema or "enum" in schema else None)
        return set(kind) if isinstance(kind, list) else {kind}

    def differences(self, schema, want, where, is_answer):
        """An answer of ours may have less than it could, a request no more than it may."""
        schema = self.follow(schema)
        choices = [self.follow(s) for s in schema.get("oneOf", schema.get("anyOf", ()))]
        if want is ANY:
            return
        if isinstance(want, Maybe):
            want = want.type
        if isinstance(want, OneOf) or choices:
            wants = want.types if isinstance(want, OneOf) else [want]
            for kind in wants:
                found = [list(self.differences(s, kind, where, is_answer))
                         for s in choices or [schema]]
                if [] not in found:
                    yield from min(found, key=len)
            return
        if isinstance(want, Range):
            want = int
        if isinstance(want, type):
            if not KINDS[want] & self.kinds(schema):
                yield f"{where} is {schema.get('type')}"
        elif isinstance(want, set):
            words = schema.get("enum", [schema["const"]] if "const" in schema else want)
            if extra := want - set(words):
                yield f"{where} cannot be {sorted(extra)}"
        elif isinstance(want, list):
            if "array" not in self.kinds(schema):
                yield f"{where} is {schema.get('type')}"
            else:
                yield from self.differences(schema["items"], want[0], where + "[]", is_answer)
        elif "object" not in self.kinds(schema):
            yield f"{where} is {schema.get('type')}"
        elif want is not MAP:
            yield from self.member_differences(schema, want, where, is_answer)

    def member_differences(self, schema, want, where, is_answer):
        properties, required = schema.get("properties", {}), set(schema.get("required", ()))
        for name, kind in want.items():
            name = name.rstrip("?")
            if name not in properties:
                yield f"{where} has no {name}"
            else:
                yield from self.differences(properties[name], kind, f"{where}.{name}", is_answer)
        needed = {name for name in want if not name.endswith("?")}
        if is_answer and (left := required - needed):
            yield f"{where} needs {sorted(left)}"
        if not is_answer and (left := required - {name.rstrip("?") for name in want}):
            yield f"{where} needs {sorted(left)}"

    def compare(self, table):
        """A line for each difference of TABLE, of Operations by name."""
        for name, op in table.items():
            operation = self.operation(op)
            if not operation:
                yield f"{name}: there is no {op.method} {op.path}"
                continue
            query = {p["name"]: p for p in operation.get("parameters", ()) if p["in"] == "query"}
            for key in op.query or ():
                if key.rstrip("?") not in query:
                    yield f"{name}: the query has no {key}"
            for key, p in query.items():
                if p.get("required") and key not in (op.query or ()):
                    yield f"{name}: the query needs {key}"
            if isinstance(op.body, dict):
                yield from self.differences(self.json(operation["requestBody"]), op.body, name,
                                            False)
            if str(op.status) not in operation["responses"]:
                yield f"{name}: no answer has {op.status}"
            elif op.answer:
                yield from self.differences(self.json(operation["responses"][str(op.status)]),
                                            op.answer, name + "'s answer", True)
