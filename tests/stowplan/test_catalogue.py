"""The shipped catalogues and a user's own: what they hold, and every way in which a file can be wrong."""

import tomllib
from pathlib import Path

import pytest

from models.catalogue import find_model, model_names
from models.transformer import Operator, OperatorModel, Optimizer, Precision, Transformer
from stowplan.catalogue import own_catalogue
from stowplan.errors import InputError
from tests.own_catalogue import CATALOGUE
from tests.paths import ROOT
from topology.gpu_catalogue import find_product, known_product, products

SHIPPED = {"gpu": ROOT / "topology" / "gpus.toml", "model": ROOT / "models" / "models.toml"}
GPU = """
[gpu.x1]
memory_bytes = 80e9
peak_flops_per_s = { bf16 = 900e12 }
memory_bandwidth_bytes_per_s = 3e12
intra_node_bandwidth_bytes_per_s = 450e9
inter_node_bandwidth_bytes_per_s = 400e9
gpus_per_node = 8
node = "one switch"
source = "data sheet"
"""
MODEL = """
[model.m1]
num_layers = 24
hidden_size = 1024
vocabulary_size = 51200
sequence_length = 1024
source = "paper"
"""
RESNET = """
[model.r1]
architecture = "wide-resnet"
depth = 50
channels = 224
width_factor = 2
image_size = 224
num_classes = 1000
source = "paper"
"""
LIST = """
[model.l1]
architecture = "operators"
source = "measured"
[[model.l1.operators]]
name = "first"
parameters = 1000
forward_flops = 2e9
memory_traffic_bytes = 3e6
activation_bytes = 4e6
output_bytes = 1e6
tensor_parallel_bytes = 0
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "own.toml"
    path.write_text(text)
    return path


def look_up(path: Path) -> None:
    """Read both sections."""
    with own_catalogue(path):
        products()
        model_names()


@pytest.mark.parametrize("section", SHIPPED)
def test_every_shipped_row_has_a_source(section: str) -> None:
    document = tomllib.loads(SHIPPED[section].read_text())
    assert list(document) == [section]
    assert all(len(row["source"]) > 8 for row in document[section].values())
    assert len(document[section]) == len(products() if section == "gpu" else model_names())


def test_a_file_of_ones_own_extends_both_catalogues(tmp_path: Path) -> None:
    shipped = len(products()), len(model_names())
    with own_catalogue(written(tmp_path, CATALOGUE)):
        assert (len(products()), len(model_names())) == (shipped[0] + 1, shipped[1] + 3)
        own, h100 = find_product("example corp x1 80 gb"), find_product("h100")
        assert own.name == "x1"
        assert own.memory_bandwidth_bytes_per_s == h100.memory_bandwidth_bytes_per_s
        assert list(own.peak_flops_per_s) == ["fp32", "bf16"]
        own_model, shipped_model = (find_model(name, global_batch=8) for name in ("own-0.4b", "gpt2-350m"))
        assert isinstance(own_model, Transformer)
        assert own_model.name == "own-0.4b"
        assert (own_model.num_heads, own_model.precision) == (16, Precision.BF16)
        assert own_model.hidden_size == getattr(shipped_model, "hidden_size", None)
        with pytest.raises(InputError, match=r"did you mean 'own-0.4b'"):
            find_model("own-0.5b", global_batch=8)
    assert known_product("x1") is None
    assert len(model_names()) == shipped[1]


def test_operators_of_ones_own(tmp_path: Path) -> None:
    with own_catalogue(written(tmp_path, CATALOGUE)):
        resnet, shipped = (find_model(name, global_batch=8) for name in ("own-resnet", "wide-resnet-500m"))
        listed = find_model("own_list", global_batch=8, precision=Precision.FP16)
        with pytest.raises(InputError, match="own-list lists the bytes of its operators in fp16; leave precision out"):
            find_model("own-list", global_batch=8, precision=Precision.BF16)
    assert isinstance(resnet, OperatorModel)
    assert isinstance(shipped, OperatorModel)
    assert (resnet.operators, resnet.optimizer) == (shipped.operators, Optimizer.SGD)
    first = Operator(
        name="first",
        parameters=1000,
        forward_flops=2e9,
        memory_traffic_bytes=3e6,
        activation_bytes=4e6,
        output_bytes=1e6,
        tensor_parallel_bytes=0.0,
    )
    assert listed == OperatorModel(operators=(first,), global_batch=8, precision=Precision.FP16, name="own-list")


def test_an_entry_takes_the_place_of_a_shipped_one_only_where_it_says_so(tmp_path: Path) -> None:
    own = GPU.replace("x1", "h100")
    with pytest.raises(InputError) as raised:
        look_up(written(tmp_path, own))
    assert "own.toml: the catalogue has 1 fault" in raised.value.detail
    (issue,) = raised.value.issues
    assert issue.pointer == "/gpu/h100"
    assert issue.detail == "is in the catalogue already: choose another name, or say replaces = true"
    path = tmp_path / "replaced.toml"
    path.write_text(own + 'replaces = true\naliases = ["h100-own"]\n')
    names = [product.name for product in products()]
    with own_catalogue(path):
        assert [product.name for product in products()] == names
        assert find_product("NVIDIA H100 80GB HBM3").source == find_product("h100 own").source == "data sheet"
    assert find_product("h100-sxm").source != "data sheet"


@pytest.mark.parametrize(
    ("text", "pointer", "words"),
    [
        (GPU.replace("[gpu", "[gpus"), "/gpus", "is no section; write [gpu.NAME] or [model.NAME]"),
        ("gpu = 3", "/gpu", "is 3; write [gpu.NAME]"),
        ("[model]\nm1 = 3", "/model/m1", "is no table; write [model.m1]"),
        (GPU.replace("memory_bytes = 80e9", ""), "/gpu/x1/memory_bytes", "is missing"),
        (GPU.replace("source", "# source"), "/gpu/x1/source", "is missing"),
        (MODEL.replace("source", "# source"), "/model/m1/source", "is missing"),
        (MODEL.replace('"paper"', '" "'), "/model/m1/source", "must be a text that is not empty"),
        (GPU + "memory = 3", "/gpu/x1/memory", "is no key here; did you mean 'memory_bytes'? known: "),
        (GPU.replace("80e9", "-80e9"), "/gpu/x1/memory_bytes", "is -80000000000.0; must be a whole number from 1 to"),
        (GPU.replace("80e9", "80.5"), "/gpu/x1/memory_bytes", "must be a whole number"),
        (GPU.replace("80e9", "true"), "/gpu/x1/memory_bytes", "is True; must be a whole number"),
        (GPU.replace("80e9", "inf"), "/gpu/x1/memory_bytes", "is inf; must be a whole number"),
        (GPU.replace("80e9", '"80 GB"'), "/gpu/x1/memory_bytes", "is '80 GB'; must be a whole number"),
        (GPU.replace("3e12", "0"), "/gpu/x1/memory_bandwidth_bytes_per_s", "is 0; must be a number above 0"),
        (GPU.replace("3e12", "nan"), "/gpu/x1/memory_bandwidth_bytes_per_s", "is nan; must be a number above 0"),
        (GPU.replace("900e12", "-1"), "/gpu/x1/peak_flops_per_s/bf16", "is -1; must be a number above 0"),
        (GPU.replace("bf16", "fp9"), "/gpu/x1/peak_flops_per_s/fp9", "known: fp32, tf32, fp16, bf16, fp8, fp4"),
        (GPU.replace("{ bf16 = 900e12 }", "{}"), "/gpu/x1/peak_flops_per_s", "must have at least one of fp32"),
        (GPU.replace("{ bf16 = 900e12 }", "900e12"), "/gpu/x1/peak_flops_per_s", "must be a table"),
        (GPU.replace("= 8\n", "= 9999\n"), "/gpu/x1/gpus_per_node", "from 1 to 4096"),
        (GPU + "replaces = true", "/gpu/x1/replaces", "nothing is called 'x1'; known: a10, a40"),
        (GPU + 'replaces = "no"', "/gpu/x1/replaces", "must be true or false"),
        (GPU + 'aliases = "x"', "/gpu/x1/aliases", "must be a list with at least one item"),
        (GPU + "aliases = [3]", "/gpu/x1/aliases/0", "must be a text"),
        (GPU + 'aliases = ["H100"]', "/gpu/x1/aliases", "'H100' finds 'h100' in the catalogue; choose another name"),
        (GPU + 'aliases = ["NVIDIA"]', "/gpu/x1/aliases", "'NVIDIA' says nothing"),
        (GPU.replace("gpu.x1", "gpu.a100"), "/gpu/a100", "'a100' finds 'a100-40gb' in the catalogue"),
        (GPU.replace("gpu.x1", "gpu.X1"), "/gpu/X1", "is no name: lower-case letters"),
        (GPU + GPU.replace("x1", "x-1"), "/gpu/x-1", "'x-1' finds 'x1' in the catalogue"),
        (MODEL.replace("m1", "gpt-2-350m"), "/model/gpt-2-350m", "'gpt-2-350m' finds 'gpt2-350m' in the catalogue"),
        (MODEL.replace("m1", "m1.5b"), "/model/m1", 'a name with a dot stands in quotes: [model."m1.5b"]'),
        (
            MODEL + 'architecture = "lstm"',
            "/model/m1/architecture",
            "must be one of transformer, wide-resnet, operators",
        ),
        (MODEL + 'precision = "int8"', "/model/m1/precision", "must be one of fp32, bf16, fp16"),
        (MODEL + 'gated = "yes"', "/model/m1/gated", "must be true or false"),
        (MODEL + "num_heads = 7", "/model/m1/num_heads", "which do not divide hidden_size 1024"),
        (MODEL + "global_batch = 7", "/model/m1/global_batch", "is no key here"),
        (MODEL.replace("= 24", "= 100001"), "/model/m1/num_layers", "must be a whole number from 1 to 100000"),
        (RESNET.replace("50", "34"), "/model/r1/depth", "is 34; must be one of 50, 101"),
        (
            RESNET.replace("image_size = 224", "image_size = 225"),
            "/model/r1/image_size",
            "is 225; must be a multiple of 32",
        ),
        (RESNET + "hidden_size = 4", "/model/r1/hidden_size", "is no key here"),
        (
            LIST.replace("= 0", "= -1"),
            "/model/l1/operators/0/tensor_parallel_bytes",
            "is -1; must be a number from 0 on",
        ),
        (LIST.replace("2e9", "0"), "/model/l1/operators", "no operator has forward_flops above 0"),
    ],
)
def test_faults_name_file_entry_and_what_would_be_right(text: str, pointer: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        look_up(written(tmp_path, text))
    assert raised.value.detail == f"{tmp_path / 'own.toml'}: the catalogue has 1 fault"
    (issue,) = raised.value.issues
    assert issue.pointer == pointer
    assert words in issue.detail


def test_all_faults_of_a_section_are_reported_together(tmp_path: Path) -> None:
    text = GPU.replace("80e9", "0").replace("3e12", "0") + GPU.replace("x1", "x2").replace("source", "sources")
    with pytest.raises(InputError, match="the catalogue has 4 faults") as raised:
        look_up(written(tmp_path, text))
    assert [issue.pointer for issue in raised.value.issues] == [
        "/gpu/x1/memory_bytes",
        "/gpu/x1/memory_bandwidth_bytes_per_s",
        "/gpu/x2/source",
        "/gpu/x2/sources",
    ]


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere.toml: cannot be read: No such file"):
        look_up(tmp_path / "nowhere.toml")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        look_up(tmp_path)
    with pytest.raises(InputError, match=r"own.toml: is not TOML: .*\(at line 2, column"):
        look_up(written(tmp_path, "[gpu.x1]\nmemory_bytes = 80 GB\n"))
    path = tmp_path / "latin.toml"
    path.write_bytes(b'[gpu.x1]\nsource = "' + b'\xe9"\n')
    with pytest.raises(InputError, match=r"latin.toml: is not TOML: .*utf-8"):
        look_up(path)
