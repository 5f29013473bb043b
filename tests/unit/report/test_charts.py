"""Charts share their axes, and nothing of one may be seen in the next."""

from __future__ import annotations

import numpy as np

from reverie.report.charts import SMALL, Chart, Line, _make_axes, draw

STEPS = np.arange(5.0)
BAND = ((STEPS - 1, STEPS + 1),)


def test_a_chart_is_the_same_whatever_was_drawn_before() -> None:
    first = Chart([Line(STEPS, STEPS, BAND, has_points=True)], "one", y_unit="return", goal=3.0)
    others = [
        Chart([Line(1e6 * STEPS, -1e9 * STEPS, colour=3)], "large"),
        Chart([Line(STEPS, np.full(5, 7.0))], "flat", "updates"),
        Chart([Line(STEPS[:1], STEPS[:1], ((STEPS[:1], STEPS[1:2]),))], "a point"),
    ]
    _make_axes.cache_clear()
    fresh = draw(first, SMALL, "key")
    for other in others:
        assert draw(other, SMALL, "key") != fresh
        assert draw(first, SMALL, "key") == fresh
