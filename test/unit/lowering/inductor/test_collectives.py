"""Collectives are barriers between programs; two processes give eager's values."""

import os
from pathlib import Path

import pytest
import warm

_RANK = """
import os, sys
import torch, torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from ktir.lowering.inductor.capture import capture_regions

torch.set_num_threads(1)
rank, store = int(sys.argv[1]), dist.FileStore(sys.argv[2], 2)
dist.init_process_group("gloo", rank=rank, world_size=2, store=store)
group = dist.group.WORLD

def model(x, w):
    y = torch.relu(x @ w)
    total = funcol.all_reduce(y, "sum", group) * 2
    gathered = funcol.all_gather_tensor(total + rank, 0, group).softmax(-1)
    part = funcol.reduce_scatter_tensor(gathered * 3, "sum", 0, group)
    return part + 1, gathered

torch.manual_seed(rank)
x, w = torch.randn(4, 6), torch.randn(6, 6)
with torch.no_grad():
    expected = model(x, w)
    options = {"engine": "ktir", "fallback": "error"}
    actual = torch.compile(model, backend="ktir", fullgraph=True, dynamic=False, options=options)(x, w)
    torch.testing.assert_close(actual, expected)
    programs = capture_regions(model, x, w)
    stored = [[b.name for b in p.buffers.values() if b.role in ("output", "mutated")] for p in programs]
    print(len(programs), all(stored))
dist.destroy_process_group()
"""


@pytest.mark.turn
def test_two_processes_match_eager(tmp_path: Path) -> None:
    ranks = []
    for rank in range(2):
        own = {"KTIR_CACHE_DIR": str(tmp_path / f"ktir{rank}"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / f"torch{rank}")}
        ranks.append(warm.start("-c", _RANK, str(rank), str(tmp_path / "store"), env={**os.environ, **own}))
    for started in ranks:
        done = started.result()
        assert done.returncode == 0, done.stderr
        assert done.stdout == "4 True\n"
