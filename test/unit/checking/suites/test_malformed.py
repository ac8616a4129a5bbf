"""Configurations that are wrong in one place each are refused there, with the reason; the one they are made from is right."""

import re
from pathlib import Path

import pytest
import torch

from ktir.checking.suites import config, models, suite
from ktir.device.autoload import register
from ktir.diagnostics import KtirError

register()

SUITE = """\
test_suite_config:
  files:
    - path: ${TORCH_ROOT}/test_*.py
      unlisted_test_mode: xfail
      tests:
        - names:
            - TestOne::test_a
            - TestOne::test_b
          mode: xfail_strict
          tags: [model_1, model_2]
          selectors:
            include:
              - has_ops: true
                ops_in_supported: true
                name_patterns: ["test_[ab]*"]
            exclude:
              - markers: [slow, requires_internet]
              - module_patterns: ["test_ops*.py"]
                decorators: [onlyCUDA]
          edits:
            ops:
              include: [{name: add, description: "a reason"}]
              exclude: [{name: gcd}]
            modules:
              include: [{name: torch.nn.BatchNorm2d}]
              exclude: [{name: torch.nn.Linear}]
            dtypes:
              include: [{name: float32}]
              exclude: [{name: bfloat16}]
            inputs:
              args:
                - tensor:
                    shape: [4, 6]
                    dtype: float16
                    device: spyre
                    init: rand
                    stride: [1, 4]
                    storage_offset: 2
                - tensor_list:
                    - {shape: [2], dtype: int64, device: cpu, init: randint, init_args: {low: 1, high: 9}}
                    - {shape: [], dtype: float32, device: "cpu", init: full, init_args: {fill_value: 2.5}}
                - tensor: {shape: [5], dtype: int32, device: cpu, init: arange}
                - tensor: {shape: [3, 3], dtype: float32, device: cpu, init: eye}
                - tensor: {shape: [2, 2], dtype: float32, device: cpu, init: file, init_args: {path: "${TORCH_DEVICE_ROOT}/two.pt", key: b}}
                - value: null
                - py: "(Ellipsis, slice(None, -1, None))"
              kwargs:
                dim: -1
                dtype: float16
        - names: [TestOne::test_c]
  global:
    devices: [cpu, spyre]
    supported_dtypes: [{name: float16}, {name: int64}]
    supported_modules: [{name: torch.nn.ReLU}]
    supported_ops:
      - name: mul
        dtypes:
          - name: float16
            precision: {atol: 1e-3, rtol: 0.5}
      - name: sub
        force_xfail: true
"""

MODEL = """\
model: tiny
default: {dtype: fp16, seed: 1, rtol: 1e-2, atol: 1.0e-2}
cases:
  - name: mul
    op: torch.mul
    inputs:
      - tensor: {shape: [4, 6], init: rand, init_args: {low: -1.0, high: 1.0}}
      - value: 3.0
    marks: [constant]
    description: from the model
  - name: cat
    op: torch.cat
    attrs: {dim: -1}
    inputs:
      - tensor_list: [{shape: [2, 3]}, {shape: [2, 5], dtype: fp16}]
    dtype: float16
"""

WRONG_MODES = [
    ("unlisted_test_mode: xfail", f"unlisted_test_mode: {word}", "expects mandatory_success, xfail")
    for word in ("pass", "XFAIL", "''", "1")
]
WRONG_MODES += [
    ("mode: xfail_strict", f"mode: {word}", "expects mandatory_success, xfail") for word in ("strict", "true", "~", "xfail-strict")
]

WRONG_TYPES = [
    (place.format(right), place.format(wrong), "torch dtype")
    for place, right in (
        ("include: [{{name: {}}}]", "float32"),
        ("exclude: [{{name: {}}}]", "bfloat16"),
        ("dtype: {}, device: cpu, init: arange", "int32"),
        ("dtype: {}\n                    device", "float16"),
        ("supported_dtypes: [{{name: {}}},", "float16"),
        ("- name: {}\n            precision", "float16"),
    )
    for wrong in ("float17", "fp16", "half_", "nn")
]

WRONG_NAMES = [
    ("TestOne::test_a", word, "Class::method")
    for word in ("test_a", "A::b::c", "'TestOne::'", "::test_a", "TestOne::test a", "TestOne.test_a")
]

WRONG_SHAPES = [
    ("shape: [4, 6]", f"shape: [4, {n}]", "whole number of 1 or more") for n in ("0", "-1", "2.5", "six", "true", "null", "1e400")
]

WRONG_LITERALS = [
    ('"(Ellipsis, slice(None, -1, None))"', f'"{text}"', "expects a Python literal")
    for text in (
        "open('x')",
        "__import__('os')",
        "slice()",
        "slice(1, 2, 3, 4)",
        "1 +",
        "[x for x in y]",
        "a.b",
        "x",
        "slice(step=1)",
        "(" * 300,
    )
]

WRONG_FIELDS = [
    (line, line.replace(line.split(":")[0].lstrip(" -"), wrong, 1), reason)
    for line, wrong, reason in (
        ("test_suite_config:\n", "test_suite", "no field 'test_suite'"),
        ("  files:\n", "file", "no field 'file'"),
        ("    - path: $", "paths", "no field 'paths'"),
        ("      tests:\n", "test", "no field 'test'"),
        ("          mode: xfail_strict", "modes", "no field 'modes'"),
        ("          selectors:\n", "selector", "no field 'selector'"),
        ("            inputs:\n", "input", "no field 'input'"),
        ("            dtypes:\n              include", "dtype", "no field 'dtype'"),
        ("              - has_ops: true", "has_op", "no field 'has_op'"),
        ("                    stride: [1", "strides", "no field 'strides'"),
        ("    devices: [cpu", "device", "no field 'device'"),
        ("        force_xfail: true", "xfail", "no field 'xfail'"),
    )
]

OTHERS = [
    ("      tests:\n        - names:", "      tests:\n        - name:", "no field 'name'"),
    ("        - names: [TestOne::test_c]", "        - mode: skip", "needs the field 'names'"),
    ("names: [TestOne::test_c]", "names: []", "at least one test"),
    ("names: [TestOne::test_c]", "names: TestOne::test_c", "expects a list"),
    ("tags: [model_1, model_2]", "tags: [model-1]", "letters, digits and underscores"),
    ("tags: [model_1, model_2]", "tags: [1x]", "letters, digits and underscores"),
    ("tags: [model_1, model_2]", "tags: ['a b']", "letters, digits and underscores"),
    ("tags: [model_1, model_2]", "tags: [[a]]", "expects a scalar"),
    ("tags: [model_1, model_2]", "tags: model_1", "expects a list"),
    ("${TORCH_ROOT}/test_*.py", "${TORCH_HOME}/test_*.py", "there are ${TORCH_ROOT}"),
    ("${TORCH_ROOT}/test_*.py", "${TORCH_ROOT}/none_*.py", "matches no test file"),
    ("${TORCH_ROOT}/test_*.py", "${TORCH_ROOT}/test_[.py", "brackets do not match"),
    ("${TORCH_ROOT}/test_*.py", "[]", "expects a scalar"),
    ('name_patterns: ["test_[ab]*"]', 'name_patterns: ["test_[ab*"]', "brackets do not match"),
    ('name_patterns: ["test_[ab]*"]', 'name_patterns: ["test_]a["]', "brackets do not match"),
    ('module_patterns: ["test_ops*.py"]', 'module_patterns: ["test_[a-]]"]', "brackets do not match"),
    ("markers: [slow, requires_internet]", "markers: [requires-internet]", "letters, digits and underscores"),
    ("- has_ops: true", "- has_ops: 1", "expects true or false"),
    ("ops_in_supported: true", "ops_in_supported: 'yes'", "expects true or false"),
    ("- markers: [slow, requires_internet]", "- {}", "at least one condition"),
    ("ops:\n              include: [{name: add,", "ops:\n              include: [{op: add,", "no field 'op'"),
    ("exclude: [{name: gcd}]", "exclude: [gcd]", "expects a mapping"),
    ("exclude: [{name: gcd}]", "exclude: [{}]", "needs the field 'name'"),
    ('description: "a reason"', "description: [a]", "expects a scalar"),
    ("name: torch.nn.BatchNorm2d", "name: BatchNorm2d", "a class with its module"),
    ("name: torch.nn.BatchNorm2d", "name: torch.nn.BatchNorm9d", "a class with its module"),
    ("name: torch.nn.Linear", "name: torch.nn.functional.linear", "a class with its module"),
    ("name: torch.nn.Linear", "name: torch..Linear", "a class with its module"),
    ("device: spyre\n                    init", "device: sypre\n                    init", "expects a device"),
    ("device: spyre\n                    init", "device: 'cpu:x'\n                    init", "expects a device"),
    ("init: rand\n", "init: random\n", "expects rand, randn"),
    (
        "dtype: float16\n                    device",
        "dtype: int8\n                    device",
        "floating-point type for rand",
        "init: rand\n",
    ),
    ("stride: [1, 4]", "stride: [1, 4, 8]", "expects 2 strides"),
    ("stride: [1, 4]", "stride: [1, -4]", "whole number of 0 or more"),
    ("stride: [1, 4]", "stride: 4", "expects a list"),
    ("storage_offset: 2", "storage_offset: -2", "whole number of 0 or more"),
    ("storage_offset: 2", "storage_offset: two", "whole number of 0 or more"),
    ("{low: 1, high: 9}", "{low: 1}", "needs 'init_args.high'"),
    ("{low: 1, high: 9}", "{low: 9, high: 9}", "expects more than low"),
    ("{low: 1, high: 9}", "{low: 1, high: 9, fill_value: 1}", "no field 'fill_value'"),
    ("init: full, init_args: {fill_value: 2.5}", "init: full", "needs 'init_args.fill_value'"),
    ("{fill_value: 2.5}", "{fill_value: much}", "expects a number"),
    ("init: arange", "init: arange, init_args: {high: 3}", "takes no arguments"),
    ("shape: [5], dtype", "shape: [5, 1], dtype", "one dim for arange"),
    ("shape: [3, 3], dtype", "shape: [3, 4], dtype", "square shape"),
    ("shape: [3, 3], dtype", "shape: [3], dtype", "square shape"),
    ("/two.pt", "/three.pt", "there is no"),
    ("/two.pt", "/two.txt", "expects a file of .pt"),
    ("/two.pt", "/broken.pt", "cannot be read"),
    ("/two.pt", "/number.pt", "expects tensors"),
    (", key: b}", "}", "needs 'key'"),
    ("key: b}", "key: c}", "is not in"),
    ("shape: [2, 2], dtype", "shape: [2, 3], dtype", "holds float32 [2, 2]"),
    ("init_args: {path: ", "init_args: {key: ", "twice"),
    ('init_args: {path: "${TORCH_DEVICE_ROOT}/two.pt", key: b}', "init_args: {key: b}", "needs 'init_args.path'"),
    ("- value: null", "- value: {a: 1}", "expects a scalar"),
    ("- value: null", "- {value: 1, py: '2'}", "exactly one of"),
    ("- value: null", "- {}", "exactly one of"),
    ("- value: null", "- number: 1", "exactly one of"),
    ("dim: -1\n", "d-m: -1\n", "name of an argument"),
    ("dim: -1\n", "dim: {a: 1}\n", "expects a scalar"),
    ("devices: [cpu, spyre]", "devices: [cpu, spire]", "expects a device"),
    ("devices: [cpu, spyre]", "devices: ['spyre:0']", "type of a device"),
    ("          - name: float16\n", "          - name: float32\n", "one of global.supported_dtypes, float16, int64"),
    ("atol: 1e-3", "atol: -1e-3", "number of 0 or more"),
    ("atol: 1e-3", "atol: small", "expects a number"),
    ("atol: 1e-3", "atol: .inf", "number of 0 or more"),
    ("rtol: 0.5", "rtol: .nan", "number of 0 or more"),
    ("precision: {atol: 1e-3, rtol: 0.5}", "precision: 1e-3", "expects a mapping"),
    ("force_xfail: true", "force_xfail: maybe", "expects true or false"),
    ("- name: sub", "- name: mul", "listed twice"),
    ("          mode: xfail_strict", "          mode: xfail_strict\n          mode: skip", "field 'mode' twice", "mode: skip"),
    ("[model_1, model_2]", "[model_1, model_2", "is not YAML", None),
    ("          mode: xfail_strict", "\t  mode: xfail_strict", "is not YAML", None),
    ("tags: [model_1, model_2]", "tags: *nothing", "is not YAML", "*nothing"),
    ("tags: [model_1, model_2]", "tags: !!python/object:os.system [a]", "has the tag", "!!python"),
]

CASES = [(SUITE, *case) for case in (*WRONG_MODES, *WRONG_TYPES, *WRONG_NAMES, *WRONG_SHAPES, *WRONG_LITERALS, *WRONG_FIELDS, *OTHERS)]
CASES += [
    (MODEL, *case)
    for case in (
        ("model: tiny", "models: tiny", "no field 'models'"),
        ("model: tiny", "model: ''", "expects a text"),
        ("dtype: fp16, seed: 1", "dtype: f16, seed: 1", "torch dtype"),
        ("seed: 1", "seed: -1", "whole number of 0 or more"),
        ("op: torch.mul", "op: torch.mull", "function of torch"),
        ("op: torch.mul", "op: os.system", "function of torch"),
        ("op: torch.cat", "op: torch.float16", "function of torch"),
        ("- name: cat", "- name: mul", "name 'mul' of an earlier case"),
        ("marks: [constant]", "marks: [a-b]", "letters, digits and underscores"),
        ("inputs:\n      - tensor: {", "inputs:\n      - tensors: {", "exactly one of"),
        ("init: rand,", "init: uniform,", "expects rand, randn"),
        ("shape: [2, 3]}", "shape: [2, x]}", "whole number of 1 or more"),
        ("attrs: {dim: -1}", "attrs: [dim]", "expects a mapping"),
        ("    dtype: float16\n", "    dtype: 16\n", "expects a text"),
    )
]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the configurations name."""
    monkeypatch.setenv("PYTORCH_ROOT", str(tmp_path))
    monkeypatch.setenv("TORCH_SPYRE_ROOT", str(tmp_path))
    (tmp_path / "test_one.py").touch()
    torch.save({"a": torch.ones(3), "b": torch.ones(2, 2)}, tmp_path / "two.pt")
    torch.save(7, tmp_path / "number.pt")
    (tmp_path / "broken.pt").write_text("nothing")
    (tmp_path / "two.txt").touch()
    return tmp_path


def _load(path: Path, text: str) -> None:
    path.write_text(text)
    if text.startswith("model"):
        models.load(str(path))
    else:
        config.load.__wrapped__(str(path))


def test_what_they_are_made_from_is_right(root: Path) -> None:
    _load(root / "c.yaml", SUITE)
    _load(root / "c.yaml", MODEL)


def test_there_are_at_least_a_hundred() -> None:
    assert len({(text.replace(old, new, 1)) for text, old, new, *_ in CASES}) == len(CASES) >= 100


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[2]!r}"[:60])
def test_a_malformed_file_is_refused_at_its_line(root: Path, case: tuple[str, ...]) -> None:
    text, old, new, reason, *where = case
    assert old in text
    wrong = text.replace(old, new, 1)
    at = text.index(old) if not where else None if where[0] is None else wrong.index(where[0])
    with pytest.raises(KtirError) as error:
        _load(root / "c.yaml", wrong)
    message = str(error.value)
    file, line, _, kind, _ = message.split(":", 4)
    assert (file, kind) == (str(root / "c.yaml"), " error")
    assert reason in message, message
    if at is not None:
        first = wrong.count("\n", 0, at) + 1
        assert first <= int(line) <= first + new.count("\n"), message


@pytest.mark.parametrize(
    ("variable", "text"), [("PYTORCH_ROOT", "PYTORCH_ROOT is not set"), ("TORCH_SPYRE_ROOT", "TORCH_SPYRE_ROOT is not set")]
)
def test_tokens_stand_for_variables(root: Path, monkeypatch: pytest.MonkeyPatch, variable: str, text: str) -> None:
    monkeypatch.delenv(variable)
    with pytest.raises(KtirError, match=text):
        _load(root / "c.yaml", SUITE)


@pytest.mark.parametrize("content", [b"", b"- a\n", b"a\n", b"\xff\xfe\x00", b"a: \x01", b"{a: &x [*x]}", b"a: " + b"[" * 3000])
def test_what_is_no_configuration_is_refused(root: Path, content: bytes) -> None:
    (root / "c.yaml").write_bytes(content)
    with pytest.raises(KtirError, match=r"c\.yaml:\d+:\d+: error: "):
        config.load.__wrapped__(str(root / "c.yaml"))


def test_an_operator_without_types_is_warned_of(root: Path) -> None:
    with pytest.warns(config.ConfigWarning, match=r"c\.yaml:\d+:\d+: warning: 'mul' has no type"):
        _load(
            root / "c.yaml",
            SUITE.replace("dtypes:\n          - name: float16\n            precision: {atol: 1e-3, rtol: 0.5}", "dtypes: []"),
        )


def test_operators_that_torch_does_not_have(root: Path) -> None:
    """One that is said to be supported may be of another version; one that a test is to run for is wrong."""
    path = root / "c.yaml"
    path.write_text(SUITE.replace("name: sub", "name: subb"))
    assert [re.sub(r".*c\.yaml", "c.yaml", text) for text in suite.check_operators(config.load.__wrapped__(str(path)))] == [
        "c.yaml:60:15: warning: torch's database has no operator 'subb', so no test of it runs"
    ]
    path.write_text(SUITE.replace("name: add", "name: addd"))
    with pytest.raises(KtirError, match=r"c\.yaml:22:32: error: torch's database has no operator 'addd'"):
        list(suite.check_operators(config.load.__wrapped__(str(path))))


def test_files_and_ranges_that_are_none(root: Path) -> None:
    with pytest.raises(KtirError, match=r"c\.yaml:2:10: error: .* expects at least one file"):
        _load(root / "c.yaml", "test_suite_config:\n  files: []\n")
    with pytest.raises(KtirError, match=r"c\.yaml:\d+:\d+: error: .* expects low up to high, but got 2.0 to 1.0"):
        _load(root / "c.yaml", MODEL.replace("low: -1.0", "low: 2.0"))
