"""Facts about ops that more than one reader needs: sets of their names, each said once."""

from ktir.dialects import ktdp
from ktir.mlir import arith, math, names

ADDRESSES = names(arith.ConstantOp, arith.AddIOp)
"""What addresses are computed with before there are loops: an argument plus constants."""
PLACES = names(ktdp.ConstructMemoryViewOp, ktdp.ConstructAccessTileOp, ktdp.ConstructIndirectAccessTileOp)
"""What says where elements lie."""
SIGNED_CASTS = names(arith.ExtSIOp, arith.TruncIOp, arith.IndexCastOp)
UNSIGNED_CASTS = names(arith.ExtUIOp, arith.IndexCastUIOp)
"""The same bits as an integer of another width, or as an index; those without sign are extended by zeros."""
INDEX_CASTS = names(arith.IndexCastOp, arith.IndexCastUIOp)
EXPONENTIALS = names(math.ExpOp, math.Exp2Op)
"""What the weights of a softmax are made with."""
