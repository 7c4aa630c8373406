"""Descriptions of models whose costs are counted by hand."""

from dataclasses import replace

from models.transformer import Biases, Operator, OperatorModel, Precision, Transformer

TINY = Transformer(
    num_layers=2,
    hidden_size=4,
    num_heads=2,
    feed_forward_size=8,
    vocabulary_size=10,
    sequence_length=3,
    global_batch=8,
    precision=Precision.FP16,
)
LATENT = {"head_size": 3, "rotary_head_size": 1, "kv_rank": 6, "biases": Biases.NONE}
OPERATOR = Operator(
    name="a",
    parameters=7,
    forward_flops=100.0,
    memory_traffic_bytes=50.0,
    activation_bytes=30.0,
    output_bytes=10.0,
    tensor_parallel_bytes=5.0,
)
OPERATORS = OperatorModel(operators=(OPERATOR, replace(OPERATOR, name="b", activation_bytes=4.0)), global_batch=8)
