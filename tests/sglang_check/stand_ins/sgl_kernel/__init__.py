"""Stands in for the kernels of SGLang, which has none for processors: what is asked for can be imported.

With attention and sampling of torch's own none of them is called; one that is says which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def __getattr__(name: str) -> Callable[..., None]:
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_: object, **__: object) -> None:
        message = f"sgl_kernel.{name} has no stand-in"
        raise NotImplementedError(message)

    return missing
