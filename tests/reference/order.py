"""The order of an epoch (S-08): ids sorted by the hash of `{seed}:{epoch}:{id}`."""

import hashlib
from collections.abc import Sequence


def key(seed: int, epoch: int, identifier: str) -> str:
    """The hexadecimal SHA-256 that places one id; hexadecimal and bytes sort alike."""
    return hashlib.sha256(f"{seed}:{epoch}:{identifier}".encode()).hexdigest()


def epoch_order(seed: int, epoch: int, ids: Sequence[str]) -> list[str]:
    """The ids in the order of this epoch, whatever order they come in."""
    return sorted(ids, key=lambda identifier: key(seed, epoch, identifier))
