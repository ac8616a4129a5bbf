"""Small streams with a fault in them, and what the control run raises of them."""

import pytest
from machine_builds import LXLU, LXSU, MNIL, MNIS, Build, program, v1, vin, vout

from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.grid import check_grid
from ktir.emulator.machine.program import faults
from ktir.isa.program import Argument
from ktir.target import DATASHEET

ARGUMENTS = [Argument("x", "input", 64, 2), Argument("y", "output", 64, 2), Argument("p", "pool", 64, 2), Argument("f", "input", 64, 4)]


def found(kind: type[faults.MachineFinding], *builds: Build, target=DATASHEET) -> faults.MachineFinding:
    """The fault that the kernels raise."""
    p = program("p", ARGUMENTS, *(b.kernel() for b in builds))
    with pytest.raises(kind) as e:
        check_grid(p, control(p, target))
    return e.value


def clean(*builds: Build, target=DATASHEET) -> None:
    """The kernels raise nothing."""
    p = program("p", ARGUMENTS, *(b.kernel() for b in builds))
    check_grid(p, control(p, target))


def loaded(sticks: int = 8, cores: int = 1, signal: bool = True) -> Build:
    """MNIL has loaded sticks 0 to 7 of LX; LXLU knows."""
    b = Build("k", cores)
    b.add(MNIL, "move", src=b.ddr(0, (sticks,), (1,)), dst=b.lx((sticks,), (1,)))
    if signal:
        b.sig(MNIL, LXLU)
        b.wait(LXLU, MNIL)
    return b


def negate(b: Build, n: int, at: int, to: int, **more) -> None:
    """Both corelets read n sticks each from `at` and write them to `to`."""
    b.add(LXLU, "push", lx=b.lx((n,), (1,), base=at, corelet_step=n), fifo="I0")
    b.rep(n, 1, vin(0, "I0"), v1("neg", 1, 0), vout(1, "O"))
    b.add(LXSU, "pull", lx=b.lx((n,), (1,), base=to, corelet_step=n, **more), fifo="O")


def store(b: Build, at: int, n: int = 8, arg: int = 1, **more) -> None:
    """MNIS writes n sticks from `at`."""
    b.add(MNIS, "move", dst=b.ddr(arg, (n,), (1,), **more), src=b.lx((n,), (1,), base=at))


def finish(b: Build, at: int) -> Build:
    """LXSU's results go to memory."""
    b.sig(LXSU, MNIS)
    b.wait(MNIS, LXSU)
    store(b, at)
    return b
