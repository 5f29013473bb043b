"""``bench.parts`` against sums done by hand."""

import torch

from bench.parts import Call, Layout, measure_parts


class Work:
    def update(self) -> None:
        self.outer(torch.zeros(4, 3))

    def outer(self, x: torch.Tensor) -> None:
        self.inner(x @ torch.zeros(3, 5))

    def inner(self, x: torch.Tensor) -> None:
        x.addmm_(torch.zeros(4, 2), torch.zeros(2, 5))
        torch.addmm(torch.zeros(7), x, torch.zeros(5, 7), out=torch.empty(4, 7))


def test_parts_have_their_own_time_and_matmuls() -> None:
    original = Work.inner
    parts = measure_parts(Work().update, {"outer": (Work, "outer"), "inner": (Work, "inner")}, times=2)
    assert round(1e9 * parts["outer"].gflop) == 2 * 4 * 3 * 5
    assert round(1e9 * parts["inner"].gflop) == 2 * 4 * 2 * 5 + 2 * 4 * 5 * 7
    assert parts["rest"].gflop == 0
    assert sum(parts["inner"].calls.values()) == 2
    assert all(part.seconds >= 0 for part in parts.values())
    assert Work.inner is original


def test_a_matmul_is_run_again_with_its_strides() -> None:
    layout = Layout((3, 4), (1, 3))
    assert layout.tensor().t().is_contiguous()
    call = Call(torch.ops.aten.mm.default, (Layout((2, 3), (3, 1)), layout), flops=48)
    assert call.seconds() > 0
