"""How long each kind of token takes in a step, by model and kind of device."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputrace.steps_work import Vector

#: Until there is a fit, in the time of one prompt token. From data sheets and the sizes of a model of 8
#: billion parameters in 16 bits (32 layers, width 4096, 8 key/value heads of 128), which is read whole once a
#: step. That takes as long as computing FLOPS / (bytes/s) tokens: 153 on an A100 (312 TFLOPS, 2.04 TB/s),
#: 203 on a T4 (65, 0.32), 295 on an H100 (989, 3.35), so 200. A token of context is 131 kB of keys and values
#: against 16 GB of weights. A pair costs 4 x 4096 x 32 operations against the 16 billion of a token, a
#: thousand of them 0.033.
CONSTANTS: Vector = (200.0, 1.0, 1.0, 0.0016, 0.033)
