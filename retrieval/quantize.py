"""How a vector becomes int8 bytes, and back to a cosine.

A component of a unit vector is stored as `round(value * scale)` clamped to [-127, 127]. The scale
is fixed per collection, so rows written at different times compare. A scale of 127 would use a
quarter of the range (384-d unit vectors have an rms of 0.05). Measured on four development sets
(82 to 1,451 sentence embeddings): at 540 one component in 100,000 is clipped, cosines are off by at
most 0.008 and 99 % of the float top ten stay; 127 is off by 0.015 (98 %), 900 by 0.03 (98 %).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats: TypeAlias = npt.NDArray[np.float32]
    Bytes: TypeAlias = npt.NDArray[np.int8]

SCALE_384: Final = 540.0
LIMIT: Final = 127


def quantize(rows: Floats, scale: float) -> Bytes:
    """int8[n, dims] of float32[n, dims] with L2-normalised rows."""
    import numpy as np

    levels: Bytes = np.clip(np.rint(rows * np.float32(scale)), -LIMIT, LIMIT).astype(np.int8)
    return levels


def packed(rows: Floats, scale: float) -> list[bytes]:
    """One `bytes` of length dims per row: what the authority stores."""
    return [row.tobytes() for row in quantize(rows, scale)]


def unpacked(rows: Sequence[bytes], dims: int) -> Bytes:
    """int8[n, dims] of stored rows."""
    import numpy as np

    return np.frombuffer(b"".join(rows), dtype=np.int8).reshape(len(rows), dims)
