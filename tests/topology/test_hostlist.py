from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.growth import work
from topology.readers.hostlist import MAX_NAMES, expand_hostlist, fold_hostlist, hostlist_order


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("n1", ["n1"]),
        ("n[001-003,20]", ["n001", "n002", "n003", "n20"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[098-101]-ib", ["n098-ib", "n099-ib", "n100-ib", "n101-ib"]),
        ("[1101-1102]", ["1101", "1102"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("a,b[1,3],c.example.org", ["a", "b1", "b3", "c.example.org"]),
        ("n[5-5]", ["n5"]),
        ("n[1,1]", ["n1", "n1"]),
    ],
)
def test_expansion(expression: str, names: list[str]) -> None:
    assert expand_hostlist(expression) == names


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "an empty name at character 1"),
        ("a,,b", "an empty name at character 3"),
        ("a,", "an empty name at character 3"),
        ("n[1-2", "unbalanced or nested brackets at character 2"),
        ("n1]", "unbalanced or nested brackets at character 3"),
        ("n[1-[2]]", "unbalanced or nested brackets at character 2"),
        ("n[]", "'' is neither a number nor a range"),
        ("n[1-]", "'1-' is neither a number nor a range"),
        ("n[a-c]", "'a-c' is neither a number nor a range"),
        ("n[1-2-3]", "'1-2-3' is neither a number nor a range"),
        ("n[3-1]", "the range '3-1' runs backwards"),
        ("Switches=s1", "'Switches=s1' cannot be part of a name"),
        ("n 1", "'n 1' cannot be part of a name"),
        ("n[0-65536]", "stands for more than 65536 names"),
        ("n[0-999999999999]", "stands for more than 65536 names"),
        ("n[1-300]x[1-300]", "stands for more than 65536 names"),
        ("a[1-40000],b[1-40000]", "stands for more than 65536 names"),
        (f"n[1-{'9' * 5000}]", "are too long"),
    ],
)
def test_malformed_expressions_are_refused(expression: str, reason: str) -> None:
    with pytest.raises(ValueError, match="hostlist") as caught:
        expand_hostlist(expression)
    assert reason in str(caught.value)


def test_the_limit_itself_is_allowed() -> None:
    assert len(expand_hostlist(f"n[1-{MAX_NAMES}]")) == MAX_NAMES


literals = st.text(alphabet="abz-._", min_size=1, max_size=4)
groups = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 4), st.integers(1, 4)).map(
        lambda item: (f"{item[0]:0{item[2]}d}", [f"{item[0] + k:0{item[2]}d}" for k in range(item[1] + 1)])
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(literals, st.lists(groups, max_size=2), st.none() | literals), min_size=1, max_size=3))
def test_expansion_is_the_product_of_the_groups(
    terms: list[tuple[str, list[list[tuple[str, list[str]]]], str | None]],
) -> None:
    """Write expressions together with the names they stand for; widths are those of the lower ends."""
    written, expected = [], []
    for prefix, brackets, suffix in terms:
        text, choices = prefix, [[prefix]]
        for ranges in brackets:
            items = [low if len(numbers) == 1 else f"{low}-{numbers[-1]}" for low, numbers in ranges]
            text += f"[{','.join(items)}]"
            choices.append([f"{int(number):0{len(low)}d}" for low, numbers in ranges for number in numbers])
        written.append(text + (suffix or ""))
        expected += ["".join(parts) + (suffix or "") for parts in product(*choices)]
    assert expand_hostlist(",".join(written)) == expected


@pytest.mark.parametrize(
    ("names", "expression"),
    [
        (["n1"], "n1"),
        (["n1", "n2", "n4"], "n[1-2,4]"),
        (["n099", "n100", "n9", "n10"], "n[099-100,9-10]"),
        (["n8", "n09"], "n[8,09]"),
        (["r1n1", "r1n2", "r2n1", "r2n2"], "r[1-2]n[1-2]"),
        (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
        (["r1n1", "r2n1"], "r[1-2]n[1]"),
        (["n1-ib", "n2-ib"], "n1-ib,n2-ib"),
        (["n3", "n2"], "n[3,2]"),
        (["login", "n1", "n1"], "login,n[1,1]"),
        (["1", "2"], "[1-2]"),
        ([], ""),
    ],
)
def test_folding(names: list[str], expression: str) -> None:
    assert fold_hostlist(names) == expression


def test_sorted_names_are_folded_to_few_words() -> None:
    names = [f"r{rack:02d}n{node}" for node in range(1, 251) for rack in range(1, 41)]
    assert fold_hostlist(sorted(names, key=hostlist_order)) == "r[01-40]n[1-250]"


def test_folding_grows_linearly() -> None:
    few, many = ([f"r{k % 7}n{k // 3}" for k in range(num)] for num in (500, 4000))
    assert work(lambda: fold_hostlist(sorted(many, key=hostlist_order))) < 9 * work(
        lambda: fold_hostlist(sorted(few, key=hostlist_order))
    )


_PARTS = st.sampled_from(["n", "-", "rack", ".", "0", "1", "2", "9", "10", "007", "08", "099", "100", "9" * 19])
_NAMES = st.lists(st.lists(_PARTS, min_size=1, max_size=5).map("".join), min_size=1, max_size=30)


@given(_NAMES)
@settings(deadline=None, max_examples=300)
def test_what_is_folded_expands_to_the_same_names(names: list[str]) -> None:
    assert expand_hostlist(fold_hostlist(names)) == names
    assert sorted(expand_hostlist(fold_hostlist(sorted(names, key=hostlist_order)))) == sorted(names)
