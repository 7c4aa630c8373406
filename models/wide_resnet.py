"""Operator lists of Wide-ResNets, as Alpa's benchmark builds them (Zagoruyko and Komodakis 2016, bottleneck blocks).

An operator is one residual block, the unit of Alpa's and Arena's clustering: 16 at depth 50, 33 at depth 101. The stem
(7 x 7 convolution) is part of the first, the classifier of the last; pooling is neglected. A block of F filters and
width factor W:

    1 x 1 to F, 3 x 3 to F W (its stride is that of the block), 1 x 1 to 4 F; and 1 x 1 to 4 F beside them where the
    shape changes. Every convolution is followed by a batch norm; ReLU behind each but the shortcut's.

Per convolution of k x k from C to D channels with n output pixels, b bytes a number, per image:

    parameters   k^2 C D + 2 D          FLOPs   2 n k^2 C D
    kept         b 2 n D: input of the batch norm, output of the ReLU (the shortcut has none: b n D)
    traffic      b (inputs + 6 n D): convolution writes, batch norm reads twice and writes, ReLU reads and writes;
                 the sum of both branches b 3 n D
    all-reduced  split over channels (first convolution by outputs, second by inputs, third by outputs): the output of
                 the second convolution, and half of that of the block, which is gathered and not summed
"""

from dataclasses import dataclass
from types import MappingProxyType

from models.transformer import Operator, OperatorModel, Optimizer, Precision

# Blocks of the four stages by depth.
STAGES = MappingProxyType({50: (3, 4, 6, 3), 101: (3, 4, 23, 3)})


@dataclass(frozen=True, slots=True, kw_only=True)
class WideResNet:
    """Sizes of a Wide-ResNet (see `wide_resnet_operators`), and how it is trained."""

    depth: int
    channels: int
    width_factor: int
    image_size: int
    num_classes: int
    precision: Precision = Precision.BF16
    optimizer: Optimizer = Optimizer.ADAM

    def at(self, precision: Precision) -> OperatorModel:
        """Its operators at a precision, one image per step."""
        operators = wide_resnet_operators(
            depth=self.depth,
            channels=self.channels,
            width_factor=self.width_factor,
            image_size=self.image_size,
            num_classes=self.num_classes,
            number_bytes=precision.number_bytes,
        )
        return OperatorModel(operators=operators, global_batch=1, precision=precision, optimizer=self.optimizer)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Convolution:
    """One convolution with its batch norm; `pixels` of its output."""

    kernel: int
    inputs: int
    outputs: int
    pixels: int
    stride: int = 1
    activated: bool = True

    @property
    def parameters(self) -> int:
        return self.kernel**2 * self.inputs * self.outputs + 2 * self.outputs

    @property
    def flops(self) -> float:
        return 2.0 * self.pixels * self.kernel**2 * self.inputs * self.outputs

    @property
    def size(self) -> int:
        """Numbers of the output."""
        return self.pixels * self.outputs

    @property
    def kept(self) -> int:
        return self.size * (2 if self.activated else 1)

    @property
    def traffic(self) -> int:
        return self.pixels * self.stride**2 * self.inputs + self.size * (6 if self.activated else 4)


def wide_resnet_operators(
    *, depth: int, channels: int, width_factor: int, image_size: int, num_classes: int, number_bytes: int
) -> tuple[Operator, ...]:
    """Operators of a Wide-ResNet, one per residual block.

    Parameters
    ----------
    depth
        50 or 101.
    channels
        F of the first stage; it doubles from stage to stage.
    image_size
        Pixels of a side; a multiple of 32.
    number_bytes
        Bytes of a weight or activation.
    """
    side = image_size // 4
    inputs = channels
    before = [_Convolution(kernel=7, inputs=3, outputs=channels, pixels=(image_size // 2) ** 2, stride=2)]
    operators = []
    for i, num_blocks in enumerate(STAGES[depth]):
        filters = channels * 2**i
        for j in range(num_blocks):
            stride = 2 if i > 0 and j == 0 else 1
            side //= stride
            block = _block(inputs, filters, width_factor, stride, side**2)
            operators.append(_operator(f"stage{i + 1}.block{j + 1}", [*before, *block], number_bytes))
            inputs = 4 * filters
            before = []
    operators[-1] = _with_classifier(operators[-1], inputs, num_classes, number_bytes)
    return tuple(operators)


def _block(inputs: int, filters: int, width_factor: int, stride: int, pixels: int) -> list[_Convolution]:
    wide = filters * width_factor
    block = [
        _Convolution(kernel=1, inputs=inputs, outputs=filters, pixels=pixels * stride**2),
        _Convolution(kernel=3, inputs=filters, outputs=wide, pixels=pixels, stride=stride),
        _Convolution(kernel=1, inputs=wide, outputs=4 * filters, pixels=pixels),
    ]
    if inputs != 4 * filters:
        shortcut = _Convolution(
            kernel=1, inputs=inputs, outputs=4 * filters, pixels=pixels, stride=stride, activated=False
        )
        block.insert(0, shortcut)
    return block


def _operator(name: str, convolutions: list[_Convolution], number_bytes: int) -> Operator:
    """Sum up a block; its last two convolutions are the 3 x 3 and the last 1 x 1."""
    middle, last = convolutions[-2:]
    return Operator(
        name=name,
        parameters=sum(part.parameters for part in convolutions),
        forward_flops=sum(part.flops for part in convolutions),
        memory_traffic_bytes=float(number_bytes * (sum(part.traffic for part in convolutions) + 3 * last.size)),
        activation_bytes=float(number_bytes * sum(part.kept for part in convolutions)),
        output_bytes=float(number_bytes * last.size),
        tensor_parallel_bytes=number_bytes * (middle.size + last.size / 2),
    )


def _with_classifier(block: Operator, inputs: int, num_classes: int, number_bytes: int) -> Operator:
    """The last block with mean over the pixels and linear layer behind it; a sample leaves as its class scores."""
    return Operator(
        name=block.name,
        parameters=block.parameters + inputs * num_classes + num_classes,
        forward_flops=block.forward_flops + 2.0 * inputs * num_classes,
        memory_traffic_bytes=block.memory_traffic_bytes
        + block.output_bytes
        + number_bytes * (2 * inputs + num_classes),
        activation_bytes=block.activation_bytes + number_bytes * (inputs + num_classes),
        output_bytes=float(number_bytes * num_classes),
        tensor_parallel_bytes=block.tensor_parallel_bytes,
    )
