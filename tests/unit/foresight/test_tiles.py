"""Pictures of foresight, pixel by pixel."""

from __future__ import annotations

import numpy as np

from reverie.foresight.tiles import DREAMT, GAP, SEEN, as_colours, compare_frames, reconstruction_picture


def test_truth_model_and_error_lie_side_by_side() -> None:
    truth = np.zeros((2, 3, 4, 5, 3), np.uint8)
    truth[1, 2] = 100
    model = np.full_like(truth, 50)
    is_dreamt = np.zeros((2, 3), bool)
    is_dreamt[1, 2] = True
    frames = compare_frames(truth, model, is_dreamt)
    assert frames.shape == (3, 4 + GAP + 4, 3 * 5 + 2 * GAP, 3)
    below = frames[2, 4 + GAP :]
    assert (below[:, :5] == 100).all()
    assert (below[:, 5 + GAP : 10 + GAP] == 50).all()
    assert (below[:, 10 + 2 * GAP :] == 128 - 25).all()
    assert (frames[2, :4, 10 + 2 * GAP :] == 128 + 25).all()
    assert below[0, 5].tolist() == list(DREAMT)
    assert frames[2, 0, 5].tolist() == frames[1, 4 + GAP, 5].tolist() == list(SEEN)


def test_truth_stands_above_its_reconstruction() -> None:
    truth, model = np.zeros((2, 3, 4, 5, 1), np.uint8), np.full((2, 3, 4, 5, 1), 9, np.uint8)
    truth[1, 2] = 7
    picture = reconstruction_picture(truth, model)
    assert picture.shape == (2 * 8, 3 * 5, 3)
    assert (picture[8:12, 10:] == 7).all()
    assert (picture[12:] == 9).all()
    assert reconstruction_picture(truth, model, columns=2).shape == (16, 10, 3)


def test_grey_pictures_and_stacks_get_colours() -> None:
    stack = np.arange(4, dtype=np.uint8).reshape(1, 1, 4)
    assert as_colours(stack).tolist() == [[[3, 3, 3]]]
