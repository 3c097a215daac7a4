"""Time buckets by whole seconds: the same bucket in every runtime, however it rounds a logarithm."""

import functools

import torch
from torch import Tensor

from railsearch.encoders.sequence.tiled_attention import NUM_TIME_BUCKETS, TIME_BUCKET_WIDTH, time_buckets

LONGEST = 2**62


@functools.cache
def time_thresholds() -> tuple[int, ...]:
    """Return the shortest time difference of each bucket, in seconds; buckets that no whole second reaches are empty.

    >>> time_thresholds()[:6]
    (0, 2, 2, 3, 4, 5)
    """
    found = [0]
    for bucket in range(1, NUM_TIME_BUCKETS):
        low, high = found[-1], LONGEST  # the bucket of `high` is at least this one
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if int(time_buckets(torch.tensor([middle]))) >= bucket else (middle + 1, high)
        found.append(low)
    return tuple(found)


def exact_time_buckets(seconds: Tensor) -> Tensor:
    """Return the buckets of `time_buckets`, by comparisons of integers.

    A logarithm finds a bucket that may be off by one if its last bit differs; the thresholds on both sides correct it.

    >>> exact_time_buckets(torch.tensor([0, 1, -86400])).tolist(), time_buckets(torch.tensor([0, 1, -86400])).tolist()
    ([0, 0, 37], [0, 0, 37])
    """
    thresholds = torch.tensor([*time_thresholds(), 2**63 - 1], device=seconds.device)  # (buckets + 1,)
    lengths = seconds.abs()
    guesses = (lengths.clamp(min=1).float().log() / TIME_BUCKET_WIDTH).long().clamp(max=NUM_TIME_BUCKETS - 1)
    is_below, is_beyond = lengths < thresholds[guesses], lengths >= thresholds[guesses + 1]
    return guesses - is_below.long() + is_beyond.long()
