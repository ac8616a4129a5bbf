"""Command lines in LLVM's manner: one or two dashes, `=value` or the next word, options and files in any order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


class UsageError(Exception):
    """A command line that cannot be understood."""


@dataclass(frozen=True)
class Flag:
    """One option. `value` names its value in the help; None: a switch. `implied` is the value when `=value` may be left out."""

    name: str
    help: str
    value: str | None = None
    implied: str | None = None
    choices: tuple[str, ...] = ()
    """The only values allowed, if there are any here."""
    repeated: bool = False
    """Whether it may be given several times: its values are in `CommandLine.every`."""


@dataclass
class CommandLine:
    """What was given: values by flag name (switches: `true`; the last one counts), all values of flags that may be repeated, flags that
    the table does not know in order, positional words."""

    values: dict[str, str] = field(default_factory=dict)
    others: list[tuple[str, str]] = field(default_factory=list)
    positional: list[str] = field(default_factory=list)
    every: dict[str, list[str]] = field(default_factory=dict)

    def on(self, name: str) -> bool:
        return self.values.get(name) == "true"

    def list(self, name: str) -> list[str]:
        """A comma-separated value."""
        return [part for part in self.values.get(name, "").split(",") if part]

    def number(self, name: str) -> int | None:
        """A non-negative number of 63 bits. Raises UsageError."""
        text = self.values.get(name)
        if text is None:
            return None
        if not text.isdecimal() or int(text) >= 1 << 63:
            raise UsageError(f"'--{name}={text}': expected a number" + (" below 2**63" if text.isdecimal() else ""))
        return int(text)

    def real(self, name: str, default: float) -> float:
        """A number that is not negative. Raises UsageError."""
        text = self.values.get(name)
        try:
            value = default if text is None else float(text)
        except ValueError:
            value = -1.0
        if not 0.0 <= value < float("inf"):
            raise UsageError(f"'--{name}={text}': expected a number that is not negative")
        return value


def parse(arguments: Sequence[str], flags: Iterable[Flag]) -> CommandLine:
    """Reads `arguments`. Raises UsageError for missing, superfluous or wrong values."""
    table = {flag.name: flag for flag in flags}
    line = CommandLine()
    words = iter(arguments)
    for word in words:
        if word == "-" or not word.startswith("-"):
            line.positional.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        flag = table.get(name)
        if flag is None:
            line.others.append((name, value))
        elif flag.value is None:
            if value not in ("", "true", "false", "1", "0"):
                raise UsageError(f"'{word}': expected true or false")
            line.values[name] = "false" if value in ("false", "0") else "true"
        elif equals:
            line.values[name] = value
        elif flag.implied is not None:
            line.values[name] = flag.implied
        else:
            following = next(words, None)
            if following is None:
                raise UsageError(f"'{word}' needs a value: {flag.value}")
            line.values[name] = following
        if flag is not None and flag.repeated:
            line.every.setdefault(name, []).append(line.values[name])
        if flag is not None and flag.choices and line.values[name] not in flag.choices:
            raise UsageError(f"'{word}': expected {' or '.join(flag.choices)}")
    return line


def help_text(flags: Iterable[Flag]) -> str:
    """One line per flag."""
    rows = []
    for flag in flags:
        value = "" if flag.value is None else f"[={flag.value}]" if flag.implied is not None else f"=<{flag.value}>"
        rows.append((f"  {'-' if len(flag.name) == 1 else '--'}{flag.name}{value}", flag.help))
    width = max(len(left) for left, _ in rows)
    return "\n".join(f"{left:<{width}}  {right}" for left, right in rows)
