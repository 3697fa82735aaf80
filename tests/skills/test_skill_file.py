"""SKILL.md: what is written can be read, by us and by anything that reads YAML."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone import SkillError
from untildone.skills.skill_file import SkillFile

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
FILES = st.builds(
    SkillFile,
    name=st.from_regex(r"[a-z0-9]{1,10}(-[a-z0-9]{1,10}){0,2}", fullmatch=True),
    description=TEXTS.filter(bool),
    metadata=st.dictionaries(st.from_regex(r"[a-z0-9][a-z0-9-]{0,9}", fullmatch=True), TEXTS),
    body=TEXTS,
)


@given(FILES)
def test_what_is_written_is_read_again_verbatim(file: SkillFile):
    assert SkillFile.from_text(file.to_text()) == file


@given(FILES)
def test_what_is_written_is_yaml(file: SkillFile):
    yaml = pytest.importorskip("yaml")
    front = file.to_text().split("\n---\n")[0]
    read = yaml.safe_load(front.removeprefix("---\n"))
    assert read.pop("metadata", {}) == file.metadata
    assert read == {"name": file.name, "description": file.description}


@pytest.mark.parametrize("name", ["on", "no", "null", "9", "1e5", "2026-01-01", "0x1f", "y"])
def test_a_name_that_yaml_would_not_take_for_a_text_is_quoted(name: str):
    yaml = pytest.importorskip("yaml")
    file = SkillFile(name=name, description="d", metadata={name: "v"}, body="")
    front = file.to_text().split("\n---\n")[0].removeprefix("---\n")
    assert yaml.safe_load(front) == {"name": name, "description": "d", "metadata": {name: "v"}}
    assert SkillFile.from_text(file.to_text()) == file


def test_the_form_is_the_one_of_the_agent_skills_specification():
    file = SkillFile(
        name="sql-analyst",
        description='Answers "how much".',
        metadata={"version": "1"},
        body="# Instructions\n\nBe exact.",
    )
    assert file.to_text() == (
        "---\n"
        "name: sql-analyst\n"
        'description: "Answers \\"how much\\"."\n'
        "metadata:\n"
        '  version: "1"\n'
        "---\n"
        "\n"
        "# Instructions\n\nBe exact.\n"
    )


def test_a_file_that_other_tools_wrote_is_read_too():
    file = SkillFile.from_text(
        "\ufeff---\r\n"
        "# made by hand\r\n"
        "name: pdf-forms\r\n"
        "description: Fills 'forms' in PDFs: quickly # or so\r\n"
        "license: MIT\r\n"
        "allowed-tools: Read Write\r\n"
        "\r\n"
        "metadata:\r\n"
        "    author: 'it''s me'\r\n"
        '    "version": "1.0"\r\n'
        "compatibility: any\r\n"
        "---\r\n"
        "Do it.\n"
    )
    assert (file.name, file.body) == ("pdf-forms", "Do it.")
    assert file.description == "Fills 'forms' in PDFs: quickly"
    assert file.metadata == {"author": "it's me", "version": "1.0"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "does not begin with a line of '---'"),
        ("name: x\n", "does not begin"),
        ("---\nname: x\ndescription: y\n", "has no end"),
        ("---\nname: x\n---\n", "no 'description'"),
        ("---\ndescription: x\n---\n", "no 'name'"),
        ("---\nname: x\ndescription:\n---\n", "no 'description'"),
        ("---\nname: x\n- item\n---\n", r"line 3 is not 'key: value': '- item'"),
        ("---\nname: x\n  more: y\n---\n", "line 3 belongs to nothing"),
        ('---\nname: "x\n---\n', "line 2 has a text in quotes that cannot be read"),
        ('---\nname: "x" y\n---\n', "line 2 has something after"),
        ("---\nname: 'x\n---\n", "line 2 has a text in quotes that does not end"),
        ("---\nname: x\ndescription: &y z\n---\n", "line 3 has a form that is not read here"),
        ("---\nname: [x]\n---\n", "double quotes"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(text: str, told: str):
    with pytest.raises(SkillError, match=told):
        SkillFile.from_text(text)


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ("|\n  one\n    two\n\n  three", "one\n  two\n\nthree"),
        (">-\n  one\n  two\n\n  three", "one two\nthree"),
        ("| # why\n  one", "one"),
    ],
)
def test_texts_over_several_lines_are_read(block: str, text: str):
    file = SkillFile.from_text(f"---\nname: x\ndescription: {block}\nlicense: MIT\n---\nDo it.\n")
    assert (file.description, file.body) == (text, "Do it.")


def test_what_is_no_text_is_named_and_passed_over():
    file = SkillFile.from_text(
        "---\nname: x\ndescription: y\nallowed-tools: [a, b]\nhooks:\n- a: b\n- c\nmore:\n  deep:\n"
        "    er: 1\nmetadata:\n  one: 1\n  list:\n    - a\n  flow: {a: b}\n---\nDo it.\n"
    )
    assert file.metadata == {"one": "1"}
    assert file.unread == {"list", "flow"}
