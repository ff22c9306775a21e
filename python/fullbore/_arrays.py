"""What makes a part of a recording an array for other packages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Optional

import numpy as np
from numpy.typing import DTypeLike, NDArray


class Readable(ABC):
    """Something that is read by slices. numpy, DLPack and buffers take all of it, which is a copy."""

    @abstractmethod
    def __getitem__(self, key: Any) -> Any: ...

    def __array__(self, dtype: Optional[DTypeLike] = None, copy: Optional[bool] = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("a recording becomes an array only by reading it, which is a copy")
        values: NDArray[Any] = self[:]
        return values if dtype is None else values.astype(dtype)

    def __buffer__(self, flags: int) -> memoryview:
        return self.__array__().data

    def __dlpack__(self, **options: Any) -> Any:
        if options.get("copy") is False:
            raise BufferError("a recording becomes an array only by reading it, which is a copy")
        return self.__array__().__dlpack__(**{name: value for name, value in options.items() if name != "copy"})

    def __dlpack_device__(self) -> tuple[int, int]:
        return np.empty(0, dtype=np.uint8).__dlpack_device__()
