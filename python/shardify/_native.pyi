"""The extension: a loader whose batches are Arrow memory. `shardify.loader` is what users call."""

from collections.abc import Iterator, Sequence
from typing import Any

class NativeLoader:
    def __new__(
        cls,
        location: str,
        version: int,
        *,
        global_batch_size: int,
        seed: int,
        rank: int,
        world_size: int,
        memory: str,
        drop_last: bool,
        shuffle: bool,
        split: str | None = None,
        columns: Sequence[str] | None = None,
        block: int | None = None,
        lanes: int | None = None,
        window: int | None = None,
        threads: int | None = None,
        sources: int = 1,
        without: Sequence[int] | None = None,
    ) -> NativeLoader: ...
    def facts(self) -> dict[str, Any]: ...
    def start(self, epoch: int, first_step: int, stride: int = 1) -> NativeBatches: ...

class NativeRecords:
    def __new__(
        cls,
        location: str,
        version: int,
        *,
        split: str | None = None,
        columns: Sequence[str] | None = None,
        threads: int | None = None,
    ) -> NativeRecords: ...
    def facts(self) -> dict[str, Any]: ...
    def take(self, positions: list[int]) -> NativeBatch: ...

class NativeBatches:
    def __iter__(self) -> Iterator[NativeBatch]: ...
    def __next__(self) -> NativeBatch: ...
    def begin(self) -> None: ...
    def close(self) -> None: ...
    def stats(self) -> dict[str, Any]: ...

class NativeBatch:
    epoch: int
    step: int
    expected: int
    records: NativeBuffer
    positions: NativeBuffer
    names: list[str]
    nbytes: int
    @staticmethod
    def join(batches: list[NativeBatch]) -> NativeBatch: ...
    def __len__(self) -> int: ...
    def column(self, index: int) -> dict[str, Any]: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...
    def __arrow_c_schema__(self) -> object: ...

class NativeBuffer:
    __array_interface__: dict[str, Any]
