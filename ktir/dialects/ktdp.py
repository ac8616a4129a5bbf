"""The `ktdp` dialect, in the newest public spelling: views of memory, tiles of views, loads and stores of tiles, exchange between tiles.

This module names everything. `types` holds the types, the attributes and the declaration, `Ktdp(Dialect, name="ktdp")`, which the
registry looks for here; `kernel`, `views`, `tiles`, `memory` and `inter_tile` hold the ops,
`builders` the functions that build them.
"""

from ktir.assembly.parameters import DYNAMIC
from ktir.dialects._ktdp.builders import (
    construct_access_tile,
    construct_distributed_memory_view,
    construct_indirect_access_tile,
    construct_memory_view,
    get_compute_tile_id,
    inter_tile_all_to_all,
    inter_tile_consume,
    inter_tile_gather,
    inter_tile_produce,
    inter_tile_reduce,
    inter_tile_reduce_scatter,
    inter_tile_scatter,
    load,
    runtime_arg_extract,
    store,
)
from ktir.dialects._ktdp.inter_tile import (
    InterTileAllToAllOp,
    InterTileConsumeOp,
    InterTileGatherOp,
    InterTileProduceOp,
    InterTileReduceOp,
    InterTileReduceScatterOp,
    InterTileScatterOp,
    YieldPartialOp,
    YieldReducedOp,
)
from ktir.dialects._ktdp.kernel import GetComputeTileIdOp, RuntimeArgExtractOp
from ktir.dialects._ktdp.memory import LoadOp, StoreOp
from ktir.dialects._ktdp.tiles import ConstructAccessTileOp, ConstructIndirectAccessTileOp, RegionTerminatorOp
from ktir.dialects._ktdp.types import (
    SUCCESSORS,
    AccessTileType,
    Ktdp,
    MemorySpaceAttr,
    RuntimeArgType,
    SpyreMemorySpaceAttr,
    TileFutureType,
)
from ktir.dialects._ktdp.views import ConstructDistributedMemoryViewOp, ConstructMemoryViewOp

__all__ = [
    "DYNAMIC",
    "SUCCESSORS",
    "AccessTileType",
    "ConstructAccessTileOp",
    "ConstructDistributedMemoryViewOp",
    "ConstructIndirectAccessTileOp",
    "ConstructMemoryViewOp",
    "GetComputeTileIdOp",
    "InterTileAllToAllOp",
    "InterTileConsumeOp",
    "InterTileGatherOp",
    "InterTileProduceOp",
    "InterTileReduceOp",
    "InterTileReduceScatterOp",
    "InterTileScatterOp",
    "Ktdp",
    "LoadOp",
    "MemorySpaceAttr",
    "RegionTerminatorOp",
    "RuntimeArgExtractOp",
    "RuntimeArgType",
    "SpyreMemorySpaceAttr",
    "StoreOp",
    "TileFutureType",
    "YieldPartialOp",
    "YieldReducedOp",
    "construct_access_tile",
    "construct_distributed_memory_view",
    "construct_indirect_access_tile",
    "construct_memory_view",
    "get_compute_tile_id",
    "inter_tile_all_to_all",
    "inter_tile_consume",
    "inter_tile_gather",
    "inter_tile_produce",
    "inter_tile_reduce",
    "inter_tile_reduce_scatter",
    "inter_tile_scatter",
    "load",
    "runtime_arg_extract",
    "store",
]
