"""The operations of the graph, one idea a file: each holds its node, typing, reference semantics and derivatives."""
from parray.soacs.arrays import Assert, Concat, Index, Iota, Replicate, Reshape, Slice, Transpose
from parray.soacs.contract import Contract
from parray.soacs.control import Cond, Loop, While
from parray.soacs.custom import CustomVjp
from parray.soacs.foreign import Foreign
from parray.soacs.prim import Prim
from parray.soacs.scatter import Scatter
from parray.soacs.screma import Screma
from parray.soacs.sort import Argsort
from parray.soacs.update import Update
from parray.soacs.windows import Overlap, Windows

__all__ = ["Argsort", "Assert", "Concat", "Cond", "Contract", "CustomVjp", "Foreign", "Index", "Iota", "Loop",
           "Overlap", "Prim", "Replicate", "Reshape", "Scatter", "Screma", "Slice", "Transpose", "Update", "While",
           "Windows"]
