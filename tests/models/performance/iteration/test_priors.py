from models.performance.iteration.priors import priors
from models.software import FEATURES, Software
from topology.gpu_catalogue import products


def test_every_software_and_architecture_has_priors() -> None:
    known = priors()
    assert set(known.software) == set(FEATURES) == set(Software)
    assert {product.architecture for product in products()} == set(known.families)


def test_what_is_reached_is_less_than_there_is() -> None:
    known = priors()
    shares = [known.memory, known.link, known.network, known.misaligned]
    shares += [share for gpu in known.gpus.values() for share in (gpu.matrix, gpu.fp8, gpu.attention)]
    assert all(0 < share < 1 for share in shares)
    assert all(prior.traffic >= 1 for prior in known.software.values())
    assert all(prior.overlap >= 1 for prior in known.software.values())
    assert all(0 < prior.tensor_exposed <= 1 for prior in known.software.values())


def test_other_products_have_what_is_usual() -> None:
    assert priors().gpu(None) == priors().gpu("ampere") != priors().gpu("hopper")
