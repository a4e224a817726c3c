"""Rounds in turns, medians, and the tables that come of them."""
import statistics
from dataclasses import dataclass, field

from .room import Failed, Missing


@dataclass
class Aim:
    """WAY is at least `least` times as fast as `against`; or, without that, its
    amount is at most `most`."""
    way: str
    against: str = None
    least: float = None
    most: float = None


@dataclass
class Row:
    """
    measure(sites, way, round) gives (ns, operations) or, in a row with units, (amount, 1). A row
    whose ways cannot be separated has joint(sites, round) instead, which gives that for each way.
    """
    name: str
    what: str
    ways: list
    measure: object = None
    joint: object = None
    aims: list = field(default_factory=list)
    reference: str = "native"
    units: dict = field(default_factory=dict)
    skip: object = None  # skip(sites): why this cannot be measured here, or None


class Result:
    def __init__(self, row):
        self.row = row
        self.values = {way: [] for way in row.ways}  # of each round, for one operation
        self.missing = {}

    def drop(self, way, why):
        self.values.pop(way, None)
        self.missing[way] = str(why)

    def median(self, way):
        return statistics.median(self.values[way])

    def ratio(self, way, against):
        """How many times as fast as AGAINST: the median over rounds, in which
        both met the same machine."""
        both = zip(self.values.get(way, []), self.values.get(against, []))
        ratios = [b / a for a, b in both if a]
        return statistics.median(ratios) if ratios else None

    def judged(self):
        """Each aim with what was measured and whether it is reached; None:
        could not be measured."""
        for aim in self.row.aims:
            if aim.most is not None:
                got = self.median(aim.way) if self.values.get(aim.way) else None
                yield aim, got, None if got is None else got <= aim.most
            else:
                got = self.ratio(aim.way, aim.against)
                yield aim, got, None if got is None else got >= aim.least

    def as_json(self):
        ways = {}
        for way, values in self.values.items():
            ways[way] = {"median": self.median(way), "min": min(values), "max": max(values),
                         "unit": self.row.units.get(way, "ns"), "values": values}
            ratio = self.ratio(way, self.row.reference)
            if way not in self.row.units and ratio is not None:
                ways[way]["ratio"] = round(ratio, 4)
        aims = [{"way": a.way, "against": a.against, "least": a.least, "most": a.most,
                 "got": got, "reached": reached} for a, got, reached in self.judged()]
        return {"name": self.row.name, "what": self.row.what, "reference": self.row.reference,
                "ways": ways, "missing": self.missing, "aims": aims}


def measure_round(row, sites, result, number, tell):
    if row.joint:
        for way, (amount, ops) in row.joint(sites, number).items():
            result.values[way].append(amount / ops)
        return
    ways = list(result.values)
    first = number % len(ways) if ways else 0
    for way in ways[first:] + ways[:first]:
        tell(f"{row.name}: round {number + 1}, {way}")
        try:
            amount, ops = row.measure(sites, way, number)
            result.values[way].append(amount / max(ops, 1))
        except (Missing, Failed, OSError) as e:
            result.drop(way, e)


def measure_row(row, sites, rounds, tell):
    result = Result(row)
    why = row.skip(sites) if row.skip else None
    try:
        for number in range(0 if why else rounds):
            measure_round(row, sites, result, number, tell)
    except (Missing, Failed, OSError) as e:
        why = e
    for way in [w for w, values in result.values.items() if not values or why]:
        result.drop(way, why or "not measured")
    return result


def amount(value, unit):
    if unit != "ns":
        return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
    for limit, divisor, name in ((1e4, 1e3, "us"), (1e6, 1e3, "us"), (1e9, 1e6, "ms")):
        if value < limit:
            return f"{value / divisor:.{2 if value < 1e4 else 1}f} {name}"
    return f"{value / 1e9:.2f} s"


def verdict(aim, got, reached):
    if aim.most is not None:
        text = f"{aim.way}: at most {aim.most:g}"
    else:
        text = f"{aim.way} >= {aim.least:g} x {aim.against}"
    if reached is None:
        return f"  aim: {text}: not measured"
    return f"  aim: {text}: {got:.3g}, {'reached' if reached else 'NOT REACHED'}"


def as_text(result):
    """The row as lines; above 1 is faster than the reference."""
    row = result.row
    lines = [f"{row.name}: {row.what}"]
    width = max([len(way) for way in row.ways] + [16])
    for way, values in result.values.items():
        unit = row.units.get(way, "ns")
        ratio = result.ratio(way, row.reference)
        shown = f"x {ratio:.3g}" if ratio is not None and way not in row.units else ""
        lines.append(f"  {way:{width}} {amount(result.median(way), unit):>12}  "
                     f"{amount(min(values), unit):>12} .. {amount(max(values), unit):12} {shown}")
    if len(set(result.missing.values())) == 1 and not result.values:
        lines.append(f"  skipped: {result.missing[row.ways[0]]}")
    else:
        lines += [f"  {way:{width}} - {why}" for way, why in result.missing.items()]
    lines += [verdict(*judged) for judged in result.judged()]
    return "\n".join(lines)
