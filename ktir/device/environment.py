"""Variables of the environment that users of the card know, and that mean nothing where the card is emulated."""

from __future__ import annotations

from collections.abc import Mapping

_STAGES = "KTIR_DUMP_DIR keeps what each stage makes of a program"
_LOGS = "messages are those of Python's logger 'ktir'"
_TIMES = "`ktir-opt --mlir-timing` says what each pass takes"
_BUSES = "emulated cards are on no bus; AIU_WORLD_SIZE and LOCAL_RANK choose cards"
_ELSEWHERE: dict[str, str] = {
    "DUMP_SPYRE_CODE": _STAGES,
    "DEEPRT_EXPORT_DIR": _STAGES,
    "DTCOMPILER_EXPORT_DIR": _STAGES,
    "DTCOMPILER_KEEP_EXPORT": _STAGES,
    "TORCH_SPYRE_DEBUG": _LOGS,
    "SPYRE_INDUCTOR_LOG": _LOGS,
    "SPYRE_INDUCTOR_LOG_LEVEL": _LOGS,
    "SPYRE_LOG_FILE": _LOGS,
    "TORCH_SPYRE_TIMING": _TIMES,
    "TORCH_SPYRE_TIMING_OUT": _TIMES,
    "PCIDEVICE_IBM_COM_AIU_PF": _BUSES,
    "SENLIB_DEVEL_CONFIG_FILE": "`ktir-smi` needs no driver",
    "SPYRE_COMPILE_GRANULARITY": "a graph is compiled as torch.compile gives it",
    "TORCH_SPYRE_DIST_ENFORCE_WAIT": "there is no torch.distributed",
}
"""What there is instead."""
_OFF = ("", "0")


def without_effect(environment: Mapping[str, str]) -> list[str]:
    """A sentence for each variable that is set to ask for something and that nothing reads."""
    found = [(name, why) for name, why in _ELSEWHERE.items() if environment.get(name, "") not in _OFF]
    if environment.get("LX_PLANNING") == "0":
        found.append(("LX_PLANNING", "the scratchpad is always planned"))
    ranks = sorted(name for name in environment if name.startswith("AIU_WORLD_RANK_") and environment[name])
    found += [(name, _BUSES) for name in ranks[:1]]
    return [f"{name}={environment[name]} has no effect on emulated cards: {why}" for name, why in found]
