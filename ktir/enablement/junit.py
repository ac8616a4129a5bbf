"""Runs as JUnit XML, the form in which pytest reports and CI systems keep them.

What pytest itself says of a test is its status (RFC 2834): a test that passes is XPASS, one that fails or was expected to is XFAIL, and one
during which an operator fell back to the host is FALLBACK. All else that a variant has stands in properties of its test case, so what is
written here is read as it was. A report of pytest without them has the operator in the name of each test, as
`test_model_ops_db_torch_mul__1_spyre_float16`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ktir.diagnostics import KtirError
from ktir.enablement.outcomes import Run, Status, Suite, Variant

_NAME = re.compile(r"test_model_(ops|modules)_db_(?P<operation>.+)__[^_]*_[a-z]+_(?P<dtype>[a-z0-9]+)")
_OWNERS = (
    "torch_nn_functional_",
    "torch_Tensor_",
    "torch_functional_",
    "torch_nn_",
    "torch_linalg_",
    "torch_special_",
    "torch_fft_",
    "torch_",
)
_FELL_BACK = re.compile(r"FallbackWarning: (.* is falling back to cpu.*)")
_EXPECTED = "pytest.xfail"
"""Type that pytest gives a test that was skipped because it was expected to fail."""
_UNEXPECTED = "[XPASS(strict)]"
"""How pytest's message begins for a test that passed although it was expected to fail."""
_XML = {i: "�" for i in (*range(9), 11, 12, *range(14, 32), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF)}
"""Characters that XML has no place for."""


def operation_named(test: str) -> tuple[str, str] | None:
    """The operator or module in the name of a test, and which of both it is; None where there is none.

    >>> operation_named("test_model_ops_db_torch_nn_functional_linear__23_spyre_float16")
    ('torch.nn.functional.linear', 'operator')
    """
    found = _NAME.fullmatch(test)
    if found is None:
        return None
    spelled = found["operation"]
    owner = next((o for o in _OWNERS if spelled.startswith(o) and spelled != o), "")
    name = owner.replace("_", ".") + spelled[len(owner) :]
    return name, "module" if found[1] == "modules" else "operator"


def text_of(run: Run) -> str:
    """A run as JUnit XML: a test suite for each model, a test case for each variant."""
    root = ElementTree.Element("testsuites", name="ktir-models")
    for suite in run.suites:
        held = [v.status for v in suite.variants]
        counts = {"tests": len(held), "errors": int(bool(suite.exit_code)), "failures": 0, "skipped": held.count(Status.XFAIL)}
        said = {"name": _clean(suite.name), "time": str(suite.seconds), "timestamp": run.date}
        element = ElementTree.SubElement(root, "testsuite", said | {name: str(count) for name, count in counts.items()})
        of_suite = {"run": run.id, "commit": run.commit, "exit_code": suite.exit_code, "left": suite.left, "ended": suite.ended}
        _put_properties(element, of_suite)
        for variant in suite.variants:
            _put_case(element, suite.name, variant)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _put_case(suite: ElementTree.Element, model: str, variant: Variant) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=_clean(model), name=_clean(variant.test_name), time="0")
    _put_properties(case, asdict(variant))
    if variant.status is Status.XFAIL:
        ElementTree.SubElement(case, "skipped", type=_EXPECTED, message=_clean(variant.reason))
    elif variant.status is Status.FALLBACK:
        ElementTree.SubElement(case, "system-err").text = _clean(f"FallbackWarning: {variant.reason}")


def _put_properties(element: ElementTree.Element, values: dict[str, Any]) -> None:
    properties = ElementTree.SubElement(element, "properties")
    for name, value in values.items():  # JSON writes what XML cannot
        ElementTree.SubElement(properties, "property", name=name, value=json.dumps(value))


def _clean(text: str) -> str:
    return text.translate(_XML)


def of_text(text: str, place: str) -> Run:
    """The run that a report says. A suite that has pytest's own name is called as the file. Raises KtirError, at `place`, for no report."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise KtirError(f"is no XML: {error}", place) from None
    suites = [root] if root.tag == "testsuite" else root.findall("testsuite")
    if root.tag not in ("testsuite", "testsuites") or not suites:
        raise KtirError(f"expects JUnit's <testsuites> with a <testsuite>, but got <{root.tag}>", place)
    name = Path(place).stem
    try:
        first, date = dict(_properties(suites[0])), suites[0].get("timestamp", "")
        return Run(first.get("run", f"{name} {date}".strip()), first.get("commit", ""), date, [_suite(each, name) for each in suites])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise KtirError(f"is no report of variants: {type(error).__name__}: {error}", place) from None


def _suite(element: ElementTree.Element, name: str) -> Suite:
    said = dict(_properties(element))
    given = element.get("name", "pytest")
    suite = Suite(name if given == "pytest" else given, seconds=float(element.get("time", 0)), exit_code=said.get("exit_code", 0))
    suite.ended = said.get("ended", "")
    left: Counter[str] = Counter(said.get("left", {}))
    for case in element.iter("testcase"):
        variant = _variant(case)
        if isinstance(variant, str):
            left[variant] += 1
        else:
            suite.variants.append(variant)
    suite.left = dict(left)
    return suite


def _properties(element: ElementTree.Element) -> Iterator[tuple[str, Any]]:
    """Those that are JSON; pytest's own, of whatever a test records, are text and say nothing here."""
    for each in element.findall("properties/property"):
        try:
            yield each.get("name", ""), json.loads(each.get("value", ""))
        except ValueError:
            continue


def _variant(case: ElementTree.Element) -> Variant | str:
    """Of a test case; in words why it is none."""
    said = dict(_properties(case))
    if "operation" in said and "status" in said:
        return Variant.of(said)
    test = case.get("name", "")
    named = operation_named(test)
    if named is None:
        return "tests whose names tell no operator"
    skipped = case.find("skipped")
    if skipped is not None and skipped.get("type") != _EXPECTED:
        return f"skipped: {skipped.get('message', '')}"
    bad = [each for tag in ("failure", "error") for each in case.findall(tag)]
    failed = [each for each in bad if not each.get("message", "").startswith(_UNEXPECTED)]
    fell = _FELL_BACK.search("\n".join(each.text or "" for tag in ("system-out", "system-err") for each in case.findall(tag)))
    status = Status.FALLBACK if fell else Status.XFAIL if failed or skipped is not None else Status.XPASS
    why = [fell[1]] if fell else [each.get("message", "") for each in (*failed, *([] if skipped is None else [skipped]))]
    dtype = _NAME.fullmatch(test)
    assert dtype is not None
    return Variant(named[0], named[1], test, status, input_dtypes=[dtype["dtype"]], reason=" ".join(" ".join(why).split()))


def read(place: Path) -> Run:
    """The run of a report on disk. Raises KtirError, with the file, for what is none."""
    try:
        return of_text(place.read_text(encoding="utf-8"), str(place))
    except OSError as error:
        raise KtirError(f"cannot open '{place}': {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise KtirError("is no text in UTF-8", str(place)) from None


def write(run: Run, place: Path) -> None:
    """Write a run as a report. Raises KtirError where it cannot be written."""
    try:
        place.write_text(text_of(run), encoding="utf-8")
    except OSError as error:
        raise KtirError(f"cannot write '{place}': {error.strerror or error}") from None
