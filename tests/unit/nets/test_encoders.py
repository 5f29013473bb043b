"""Trunks over every mix of observations."""

from __future__ import annotations

import pytest
import torch

from reverie.core.errors import ConfigError
from reverie.core.specs import ObservationSpec
from reverie.nets.encoders import MLP, ImpalaCNN, NatureCNN, choose_network_kind
from reverie.nets.layers import OneHot, make_mlp, orthogonal_init

IMAGE = ObservationSpec((64, 64, 3), "uint8", "image")
SMALL_IMAGE = ObservationSpec((16, 16, 1), "uint8", "image")
VECTOR = ObservationSpec((5,), "float32", "vector")
INDEX = ObservationSpec((), "int64", "discrete", (4,))
INDICES = ObservationSpec((2,), "int64", "discrete", (3, 2))


def example(spec: ObservationSpec, count: int = 3) -> torch.Tensor:
    dtype = getattr(torch, spec.dtype)
    return torch.ones(count, *spec.shape, dtype=dtype)


def test_discrete_observations_become_one_hot() -> None:
    layer = OneHot([3, 2])
    assert layer(torch.tensor([[2, 0], [0, 1]])).tolist() == [[0, 0, 1, 1, 0], [1, 0, 0, 0, 1]]
    assert OneHot([3])(torch.tensor([1, 2])).tolist() == [[0, 1, 0], [0, 0, 1]]


def test_mlp_flattens_all_observations() -> None:
    specs = {"obs/image": SMALL_IMAGE, "obs/vector": VECTOR, "obs/index": INDEX, "obs/pair": INDICES}
    network = MLP(MLP.Config(units=(8, 7), norm="layer"), specs)
    assert network.inputs.width == 16 * 16 + 5 + 4 + 5
    assert network({key: example(spec) for key, spec in specs.items()}).shape == (3, 7)
    bare = MLP(MLP.Config(units=()), {"obs": VECTOR})
    assert torch.equal(bare({"obs": example(VECTOR)}), example(VECTOR))


def test_bytes_are_scaled() -> None:
    network = MLP(MLP.Config(units=()), {"obs": ObservationSpec((2,), "uint8", "vector")})
    assert network({"obs": torch.tensor([[255, 51]], dtype=torch.uint8)}).tolist() == [[1.0, pytest.approx(0.2)]]


@pytest.mark.parametrize("kind", [NatureCNN, ImpalaCNN])
def test_image_features_are_concatenated_with_other_keys(kind: type[NatureCNN]) -> None:
    specs = {"obs/front": IMAGE, "obs/back": IMAGE, "obs/vector": VECTOR, "obs/index": INDEX}
    network = kind(kind.Config(units=(9,)), specs)
    observation = {key: example(spec) for key, spec in specs.items()}
    features = network(observation)
    assert features.shape == (3, 9)
    moved = network({**observation, "obs/vector": observation["obs/vector"] * 2})
    assert not torch.equal(features, moved)
    darker = network({**observation, "obs/back": observation["obs/back"] * 100})
    assert not torch.equal(features, darker)


def test_image_networks_require_images_of_a_minimum_size() -> None:
    with pytest.raises(ConfigError, match="needs an image"):
        NatureCNN(NatureCNN.Config(), {"obs": VECTOR})
    with pytest.raises(ConfigError, match="16x16"):
        NatureCNN(NatureCNN.Config(), {"obs": SMALL_IMAGE})


def test_auto_chooses_by_the_observation_kinds() -> None:
    assert choose_network_kind({"obs": VECTOR}) == "mlp"
    assert choose_network_kind({"obs": IMAGE, "obs/x": VECTOR}) == "nature"
    assert choose_network_kind({"obs": SMALL_IMAGE}) == "impala"


def test_orthogonal_weights() -> None:
    layers = make_mlp(6, (6,), "relu")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        orthogonal_init(layers, 2.0)
    weight = layers[0].weight
    assert torch.allclose(weight @ weight.T, 4 * torch.eye(6), atol=1e-5)  # type: ignore[operator]
    assert layers[0].bias.abs().sum() == 0  # type: ignore[union-attr,operator]
