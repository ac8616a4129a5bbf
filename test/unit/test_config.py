"""Options: defaults, environment, patches."""

import pytest

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
        ({"KTIR_CORES": "33"}, "cores must be an integer from 1 to 32"),
        ({"SENCORES": "-1"}, "cores must be"),
        ({"KTIR_VERIFY_EACH": "perhaps"}, "KTIR_VERIFY_EACH must be 0 or 1"),
        ({"KTIR_LOADED_PROGRAMS": "0"}, "loaded_programs must be an integer of at least 1"),
        ({"KTIR_FALLBACK": "host"}, "fallback must be one of cpu, error"),
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
    with pytest.raises(ValueError, match="unknown option 'corse'"), config.patch(corse=1):
        pass
    with pytest.raises(ValueError, match="cores must be"), config.patch(cores=0):
        pass


def test_key_holds_what_changes_code() -> None:
    assert Config(cores=4).key() != Config().key()
    assert Config(verify_each=True).key() != Config().key()  # what was compiled without it has not been verified
    assert Config(frozen_weights=True).key() != Config().key()
    assert Config(dump_dir="/x", forms_bytes=7, loaded_programs=3).key() == Config().key()
