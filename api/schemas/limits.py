"""Limits of what documents hold. Light: imports nothing, so that what writes documents by itself keeps to them, too."""

# Far above any cluster that exists, far below what would exhaust memory or overflow 64 bits.
MAX_GPUS_PER_NODE = 4096
MAX_GPUS = 10_000_000
MAX_ITEMS = 200_000
MAX_COUNT = 1_000_000_000
MAX_BYTES = 2**62
MAX_NAME_LENGTH = 256

# No control characters and no line breaks, which would garble terminals, logs and pictures.
NAME_PATTERN = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$"
