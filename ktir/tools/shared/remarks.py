"""Which remarks `ktir-opt` shows, and how."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ktir.diagnostics import REMARK_KINDS as KINDS
from ktir.diagnostics import Remark
from ktir.tools.shared.flags import CommandLine, UsageError


@dataclass(frozen=True)
class Selection:
    """The remarks that are asked for: kind -> patterns of pass names."""

    patterns: dict[str, list[re.Pattern[str]]]
    final: bool
    """Only the last remark of each pass at each place."""

    @classmethod
    def of(cls, line: CommandLine) -> "Selection":
        """What the flags ask for. Raises UsageError for a pattern that does not compile."""
        patterns: dict[str, list[re.Pattern[str]]] = {kind: [] for kind in KINDS}
        if line.on("remarks"):
            for found in patterns.values():
                found.append(re.compile(""))
        for kind in ("", *KINDS):
            flag = f"remarks-filter-{'analyse' if kind == 'analysis' else kind}".removesuffix("-")
            if flag in line.values:
                try:
                    pattern = re.compile(line.values[flag])
                except re.error as error:
                    raise UsageError(f"'--{flag}={line.values[flag]}': {error}") from None
                for each in (kind,) if kind else KINDS:
                    patterns[each].append(pattern)
        return cls(patterns, line.values.get("remark-policy") == "final")

    def pick(self, remarks: Iterable[Remark]) -> list[Remark]:
        """Those of `remarks` that are asked for."""
        picked = [r for r in remarks if any(p.search(r.pass_name) for p in self.patterns.get(r.kind, ()))]
        return list({(r.pass_name, r.location): r for r in picked}.values()) if self.final else picked


def yaml(remarks: Iterable[Remark]) -> str:
    """Remarks in the form that LLVM's tools read."""
    return "".join(map(_document, remarks))


def _document(remark: Remark) -> str:
    place = ""
    if remark.location:
        file, line, column = remark.location.rsplit(":", 2)
        place = f"DebugLoc:        {{ File: {_quoted(file)}, Line: {line}, Column: {column} }}\n"
    return (
        f"--- !{remark.kind.capitalize()}\nPass:            {remark.pass_name}\nName:            {remark.pass_name}\n{place}"
        f"Function:        '<unknown function>'\nArgs:\n  - String:          {_quoted(remark.message)}\n...\n"
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''").replace("\n", " ") + "'"
