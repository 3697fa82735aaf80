"""Three styles of docstrings, read for what a model should know."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.tools import as_tool
from untildone.tools.docstring import read_docstring

GOOGLE = """Searches the web.

    Use it for facts
    that change.

    Args:
        query: What to look for,
            in words.
        limit (int, optional): Most hits: at most ten.
        *rest (tuple(str, int)): The rest.
        mode: One of

            - fast: quick
            - deep: slow

    Returns:
        Hits: a list.

    Raises:
        ValueError: No query.

    Note that hits are cached.
    """

NUMPY = """Searches the web.

    Use it for facts
    that change.

    Parameters
    ----------
    query : str
        What to look for,
        in words.
    limit, offset : int, optional
        Most hits: at most ten.
    **rest
        The rest.

    Returns
    -------
    list
        Hits.

    Examples
    --------
    >>> search("x")
    """

SPHINX = """Searches the web.

    Use it for facts
    that change.

    :param query: What to look for,
        in words.
    :type query: str
    :param int limit: Most hits: at most ten.
    :param rest:
    :returns: Hits.
    :raises ValueError: No query.
    """


def test_google_style():
    found = read_docstring(GOOGLE)
    assert found.description == (
        "Searches the web.\n\nUse it for facts\nthat change.\n\nNote that hits are cached."
    )
    assert found.parameters == {
        "query": "What to look for, in words.",
        "limit": "Most hits: at most ten.",
        "rest": "The rest.",
        "mode": "One of\n\n- fast: quick\n- deep: slow",
    }


def test_numpy_style():
    found = read_docstring(NUMPY)
    assert found.description == "Searches the web.\n\nUse it for facts\nthat change."
    assert found.parameters == {
        "query": "What to look for, in words.",
        "limit": "Most hits: at most ten.",
        "offset": "Most hits: at most ten.",
        "rest": "The rest.",
    }


def test_sphinx_style():
    found = read_docstring(SPHINX)
    assert found.description == "Searches the web.\n\nUse it for facts\nthat change."
    assert found.parameters["query"] == "What to look for, in words."
    assert found.parameters["limit"] == "Most hits: at most ten."
    assert not found.parameters["rest"]


@pytest.mark.parametrize("text", [None, "", "  \n "])
def test_no_docstring_says_nothing(text):
    assert read_docstring(text) == read_docstring("")


def test_a_docstring_in_no_style_is_all_description():
    text = "Does it.\n\nImportant:\n    Not twice.\n\nArgs: see the manual."
    assert read_docstring(text).description == text


def test_a_heading_with_nothing_below_it_is_text():
    assert read_docstring("Says this:\n\nArgs:\n").description == "Says this:\n\nArgs:"


def test_sections_one_after_the_other_without_a_blank_line():
    found = read_docstring("Does it.\nArgs:\n  a: First.\nReturns:\n  b: Second.")
    assert found.parameters == {"a": "First."}
    assert found.description == "Does it."


def test_a_partial_and_a_callable_object_are_described_too():
    class Finder:
        """Finds."""

        def __call__(self, what: str) -> str:
            return what

    class Keeper:
        """A class."""

        def __call__(self, what: str) -> str:
            """Keeps.

            Args:
                what: The thing.
            """
            return what

    assert as_tool(Finder()).spec.description == "Finds."
    assert as_tool(Keeper()).spec.description == "Keeps."
    described = as_tool(Keeper()).spec.parameters["properties"]["what"]["description"]
    assert described == "The thing."


@given(st.text(alphabet=st.sampled_from(" \n:-*()_ aArgsParameters`,.\t"), max_size=200))
def test_no_text_breaks_the_reader(text):
    read_docstring(text)
