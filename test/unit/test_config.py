"""Options: defaults, environment, patches."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ktir
from ktir import config
from ktir.config import Config, from_environment


def test_defaults() -> None:
    assert from_environment({}) == Config(fallback="cpu", engine="spyre", cores=32, dump_dir=None, verify_each=False)


def test_environment() -> None:
    assert from_environment({"KTIR_CORES": "4", "SENCORES": "8"}).cores == 4
    assert from_environment({"SENCORES": "8"}).cores == 8
    found = from_environment({"KTIR_DUMP_DIR": "/x", "KTIR_VERIFY_EACH": "1", "KTIR_FALLBACK": "error"})
    assert found == Config(fallback="error", dump_dir="/x", verify_each=True)
    assert from_environment({"KTIR_VERIFY_EACH": "off", "KTIR_DUMP_DIR": ""}) == Config()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"KTIR_CORES": "many"}, "KTIR_CORES must be an integer"),
        ({"KTIR_CORES": "33"}, "KTIR_CORES must be an integer from 1 to 32"),
        ({"SENCORES": "-1"}, "SENCORES must be"),
        ({"KTIR_VERIFY_EACH": "perhaps"}, "KTIR_VERIFY_EACH must be 0 or 1"),
        ({"KTIR_LOADED_PROGRAMS": "0"}, "KTIR_LOADED_PROGRAMS must be an integer of at least 1"),
        ({"KTIR_FALLBACK": "host"}, "KTIR_FALLBACK must be one of cpu, error"),
    ],
)
def test_bad_environment(variables: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_environment(variables)


def test_patch_nests_and_restores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KTIR_CORES", "16")
    assert config.current().cores == 16
    with config.patch(cores=4) as outer:
        assert outer.cores == config.current().cores == 4
        with config.patch(dump_dir="/x"):
            assert (config.current().cores, config.current().dump_dir) == (4, "/x")
        assert config.current().dump_dir is None
    assert config.current().cores == 16


def test_bad_patch() -> None:
    with pytest.raises(ValueError, match=r"unknown option 'corse'; .*; did you mean 'cores'\?$"), config.patch(corse=1):
        pass
    for name, value in (("cores", 0), ("cores", True), ("frozen_weights", "maybe"), ("verify_each", 1), ("dump_dir", 5)):
        with pytest.raises(ValueError, match=f"{name} must be"), config.patch(**{name: value}):
            pass


def test_key_holds_what_changes_code() -> None:
    assert Config(cores=4).key() != Config().key()
    assert Config(verify_each=True).key() != Config().key()  # what was compiled without it has not been verified
    assert Config(frozen_weights=True).key() != Config().key()
    assert Config(dump_dir="/x", forms_bytes=7, loaded_programs=3).key() == Config().key()


def test_an_option_is_no_attribute() -> None:
    """An assignment would be of no effect."""
    with pytest.raises(AttributeError, match=r"ktir\.config\.patch\(engine='ktir'\), a process by the environment variable KTIR_ENGINE$"):
        ktir.config.engine = "ktir"  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"unknown option 'engin'; .*; did you mean 'engine'\?$"):
        ktir.config.engin = "ktir"  # type: ignore[attr-defined]
    assert not hasattr(config, "engine")


def test_submodules_are_there_when_asked_for() -> None:
    program = (
        "import ktir, sys; before = set(sys.modules); print(ktir.config.current().cores, 'torch' in sys.modules, 'ktir.config' in before)"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "32 False False\n"
    with pytest.raises(AttributeError, match="module 'ktir' has no attribute 'confg'"):
        _ = ktir.confg  # type: ignore[attr-defined]


def test_variables_that_nothing_reads() -> None:
    said = config.strangers({"KTIR_FALBACK": "error", "KTIR_CACHE_DIR": "/x", "KTIR_ZZZZ": "1", "PATH": "/bin"})
    assert said == [
        "the environment variable 'KTIR_FALBACK' is none that ktir reads; did you mean 'KTIR_FALLBACK'?",
        "the environment variable 'KTIR_ZZZZ' is none that ktir reads",
    ]
    program = "import os; os.environ['KTIR_FALBACK'] = 'error'; from ktir import config; config.current(); config.current()"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stderr == f"warning: {said[0]}\n"


def test_all_variables_that_are_read_are_known() -> None:
    package = Path(ktir.__file__ or "").parent
    named = {
        name
        for file in package.rglob("*.py")
        if file.name != "config.py"
        for name in re.findall(r"[\"'](KTIR_[A-Z_]+)[\"']", file.read_text())
    }
    assert named <= set(config.VARIABLES)
    assert set(config.VARIABLES) - named == {f"KTIR_{name.upper()}" for name in config.NAMES}
