import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oracle.report.curves import extremes, kept

numbers = st.floats(allow_nan=True, allow_infinity=True, width=64)
curves = st.lists(numbers, min_size=1, max_size=300).map(np.array)


@given(curves, st.integers(1, 40))
def test_every_bucket_keeps_its_extremes_ends_and_first_non_finite(values, num_buckets):
    found = extremes(values, num_buckets)
    assert found[0] == 0
    assert found[-1] == len(values) - 1
    assert np.all(np.diff(found) > 0)
    for bucket in np.array_split(np.arange(len(values)), min(num_buckets, len(values))):
        inside = np.intersect1d(bucket, found)
        part, shown = values[bucket], values[inside]
        if np.isfinite(part).any():
            assert np.max(shown[np.isfinite(shown)]) == np.max(part[np.isfinite(part)])
            assert np.min(shown[np.isfinite(shown)]) == np.min(part[np.isfinite(part)])
        if not np.isfinite(part).all():
            assert bucket[np.flatnonzero(~np.isfinite(part))[0]] in inside


def test_a_single_spike_among_a_million_steps_is_kept():
    values = np.ones(1_000_000)
    values[623_457] = 1 + 1e-15
    assert 623_457 in extremes(values, 400)
    # What the guard is for: thinning by stride loses it.
    assert 623_457 not in np.arange(0, 1_000_000, 500)


def test_short_curves_are_kept_whole_and_long_ones_within_the_limit():
    short = [np.arange(1000.0)]
    assert kept(short, must=[], limit=1000).tolist() == list(range(1000))
    rng = np.random.default_rng(0)
    long = [rng.random(50_000) for _ in range(9)]
    found = kept(long, must=[31_337], limit=9000)
    assert len(found) <= 9001
    assert 31_337 in found
    for curve in long:
        assert {int(np.argmax(curve)), int(np.argmin(curve))} <= set(found.tolist())
