"""Operator lists of Wide-ResNets.

First block of an ordinary ResNet-50 (64 channels, width factor 1, images of 224, one byte a number), 56 x 56 = 3136
pixels behind pooling:

             k  in   out   parameters k^2 in out + 2 out   MACs per pixel   kept numbers per pixel
stem         7   3    64     9,408 +  128 = 9,536          9,408 x 4        2 x 64 x 4 (112 x 112 pixels)
shortcut     1  64   256    16,384 +  512 = 16,896         16,384           256
1 x 1        1  64    64     4,096 +  128 = 4,224          4,096            2 x 64
3 x 3        3  64    64    36,864 +  128 = 36,992         36,864           2 x 64
1 x 1        1  64   256    16,384 +  512 = 16,896         16,384           2 x 256
"""

from itertools import pairwise

import pytest

from models.transformer import Operator
from models.wide_resnet import wide_resnet_operators


def _ordinary(depth: int) -> tuple[Operator, ...]:
    return wide_resnet_operators(
        depth=depth, channels=64, width_factor=1, image_size=224, num_classes=1000, number_bytes=1
    )


def test_first_block_by_hand() -> None:
    block = _ordinary(50)[0]
    pixels = 56 * 56
    assert block.name == "stage1.block1"
    assert block.parameters == 9_536 + 16_896 + 4_224 + 36_992 + 16_896
    assert block.forward_flops == 2 * pixels * (4 * 9_408 + 16_384 + 4_096 + 36_864 + 16_384)
    assert block.activation_bytes == pixels * (512 + 256 + 128 + 128 + 512)
    assert block.output_bytes == pixels * 256
    assert block.tensor_parallel_bytes == pixels * (64 + 256 / 2)
    read = 4 * 4 * 3 + 64 + 64 + 64 + 64
    written_and_more = 6 * 4 * 64 + 4 * 256 + 6 * 64 + 6 * 64 + 6 * 256 + 3 * 256
    assert block.memory_traffic_bytes == pixels * (read + written_and_more)


@pytest.mark.parametrize(
    ("depth", "blocks", "parameters", "giga_macs"),
    # What torchvision publishes of resnet50 and resnet101: parameters exactly; GFLOPS there are multiply-adds, without
    # norms.
    [(50, 16, 25_557_032, 4.09), (101, 33, 44_549_160, 7.80)],
)
def test_ordinary_resnets(depth: int, blocks: int, parameters: int, giga_macs: float) -> None:
    operators = _ordinary(depth)
    assert len(operators) == blocks
    assert sum(operator.parameters for operator in operators) == parameters
    assert sum(operator.forward_flops for operator in operators) / 2e9 == pytest.approx(giga_macs, rel=0.005)


def test_shapes_through_the_stages() -> None:
    """The pixels quarter and the channels double at every new stage."""
    outputs = [operator.output_bytes for operator in _ordinary(50)[:-1]]
    assert [outputs[k] for k in (0, 3, 7, 13)] == [56**2 * 256, 28**2 * 512, 14**2 * 1024, 7**2 * 2048]
    assert all(a >= b for a, b in pairwise(outputs))


def test_classifier_is_part_of_the_last_block() -> None:
    *_, before, last = _ordinary(50)
    assert last.parameters == before.parameters + 2048 * 1000 + 1000
    assert last.output_bytes == 1000
    assert last.forward_flops == before.forward_flops + 2 * 2048 * 1000


def test_bytes_of_a_number_scale_all_bytes_and_nothing_else() -> None:
    sizes = {"depth": 50, "channels": 32, "width_factor": 2, "image_size": 64, "num_classes": 10}
    for half, full in zip(
        wide_resnet_operators(**sizes, number_bytes=2), wide_resnet_operators(**sizes, number_bytes=4), strict=True
    ):
        assert (half.parameters, half.forward_flops) == (full.parameters, full.forward_flops)
        for field in ("memory_traffic_bytes", "activation_bytes", "output_bytes", "tensor_parallel_bytes"):
            assert 2 * getattr(half, field) == getattr(full, field)
