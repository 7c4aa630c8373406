"""A user's catalogue with a GPU and models that the shipped ones lack."""

CATALOGUE = """
[gpu.x1]
aliases = ["Example Corp X1 80GB"]
memory_bytes = 80e9
peak_flops_per_s = { bf16 = 989.5e12, fp32 = 67e12 }
memory_bandwidth_bytes_per_s = 3350e9
intra_node_bandwidth_bytes_per_s = 450e9
inter_node_bandwidth_bytes_per_s = 400e9
gpus_per_node = 4
architecture = "hopper"
num_multiprocessors = 132
node = "4 GPUs under one switch"
source = "the figures of an h100"

[model."own-0.4b"]
num_layers = 24
hidden_size = 1024
num_heads = 16
vocabulary_size = 51200
sequence_length = 1024
source = "the figures of gpt2-350m"

[model.own-resnet]
architecture = "wide-resnet"
depth = 50
channels = 224
width_factor = 2
image_size = 224
num_classes = 1024
precision = "fp32"
optimizer = "sgd"
source = "the figures of wide-resnet-500m"

[model.own-list]
architecture = "operators"
precision = "fp16"
source = "measured"

[[model.own-list.operators]]
name = "first"
parameters = 1000
forward_flops = 2e9
memory_traffic_bytes = 3e6
activation_bytes = 4e6
output_bytes = 1e6
tensor_parallel_bytes = 0
"""
