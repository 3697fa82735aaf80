"""The demo's job: what its check accepts, and that its report hides nothing."""

from __future__ import annotations

import json

import pytest

from untildone.cli.extraction import (
    EXAMPLES,
    REPLY_SCHEMA,
    Example,
    Outcome,
    Person,
    Tally,
    grounding_problems,
    messages_for,
    person_in,
    tally,
)

SENTENCE = "Mark wrote to his aunt Olga Petrova, 58, who lives at 14 Mill Lane in Sofia."
TRUTH = Person("Olga Petrova", "Sofia", 58)


def reply(name: object = "Olga Petrova", city: object = "Sofia", age: object = 58) -> str:
    return json.dumps({"name": name, "city": city, "age": age})


def test_an_answer_that_stands_in_the_sentence_passes():
    assert grounding_problems(SENTENCE, reply()) == []


def test_blanks_around_a_text_do_not_count():
    assert grounding_problems(SENTENCE, reply(name=" Olga Petrova ", city=" Sofia")) == []
    assert person_in(reply(name=" Olga Petrova ", city=" Sofia")) == TRUTH


@pytest.mark.parametrize("wrong", [reply(name="Mark"), reply(age=14), reply(city="Mill Lane")])
def test_a_wrong_answer_that_stands_in_the_sentence_passes_too(wrong: str):
    assert grounding_problems(SENTENCE, wrong) == []
    assert not Example(SENTENCE, TRUTH).is_right(wrong)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (reply(name="Olga Ivanova"), "name 'Olga Ivanova' does not stand in the sentence"),
        (reply(name="Olga Petrov"), "name 'Olga Petrov' does not stand in the sentence"),
        (reply(city="Bulgaria"), "city 'Bulgaria' does not stand in the sentence"),
        (reply(city="sofia"), "city 'sofia' does not stand in the sentence"),
        (reply(age=5), "age 5 does not stand in the sentence"),
        (reply(age=-58), "age -58 does not stand in the sentence"),
        (reply(age="58"), "age is no whole number"),
        (reply(age=True), "age is no whole number"),
        (reply(age=58.0), "age is no whole number"),
        (reply(name="  "), "name is missing"),
        (reply(city=None), "city is missing"),
    ],
)
def test_each_value_is_looked_for_as_whole_words(wrong: str, problem: str):
    assert grounding_problems(SENTENCE, wrong) == [problem]


@pytest.mark.parametrize("sentence", ["It cost 1,034 euros.", "It is 34.5 km long.", "Unit 34b."])
def test_a_part_of_a_longer_number_is_no_age(sentence: str):
    assert "age 34 does not stand in the sentence" in grounding_problems(sentence, reply(age=34))


@pytest.mark.parametrize(
    "text", ["", "Olga Petrova, Sofia, 58", '{"name": "Olga', "[1]", "null", "[" * 100_000]
)
def test_what_is_no_json_object_is_refused(text: str):
    assert grounding_problems(SENTENCE, text) == ["the reply is no JSON object"]
    assert person_in(text) is None


def test_all_problems_are_told_at_once():
    assert grounding_problems(SENTENCE, "{}") == [
        "name is missing",
        "city is missing",
        "age is no whole number",
    ]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.truth.name)
def test_the_truth_passes_the_check(example: Example):
    for person in (example.truth, example.also_right):
        if person is not None:
            text = reply(person.name, person.city, person.age)
            assert grounding_problems(example.sentence, text) == []
            assert example.is_right(text)


def test_the_sentences_are_not_among_the_examples_given_to_the_model():
    assert len({example.sentence for example in EXAMPLES}) == len(EXAMPLES) == 20
    sent = [message["content"] for message in messages_for(SENTENCE)]
    assert not {example.sentence for example in EXAMPLES} & set(sent)
    assert sent[-1] == SENTENCE
    assert not any(example.truth.city in text for example in EXAMPLES for text in sent[:-1])


def test_what_the_model_is_shown_is_right_and_fits_the_schema():
    system, *shots, _ = messages_for(SENTENCE)
    assert system["role"] == "system"
    for asked, answered in zip(shots[::2], shots[1::2], strict=True):
        assert (asked["role"], answered["role"]) == ("user", "assistant")
        assert list(json.loads(answered["content"])) == REPLY_SCHEMA["required"]
        assert grounding_problems(asked["content"], answered["content"]) == []


def test_only_the_last_message_differs_between_sentences():
    assert messages_for("one")[:-1] == messages_for("two")[:-1]


def test_the_report_counts_against_the_truth_not_the_check():
    example = Example(SENTENCE, TRUTH)
    right, wrong, refused = reply(), reply(age=14), reply(city="Plovdiv")

    def outcome(*replies: str) -> Outcome:
        return Outcome(example=example, replies=replies)

    assert tally(
        [
            outcome(right),
            outcome(refused, refused, right),
            outcome(wrong),
            outcome(refused, wrong),
            outcome(refused, refused, refused, refused),
        ]
    ) == Tally(
        sentences=5,
        right_at_first=1,
        right_after_loop=2,
        passed_but_wrong=2,
        never_passed=1,
        replies=11,
    )


def test_another_reading_that_is_right_counts_as_right():
    example = Example("Dr. Ann Lee", Person("Ann Lee", "", 1), Person("Dr. Ann Lee", "", 1))
    assert example.is_right(reply("Dr. Ann Lee", "", 1))
    assert example.is_right(reply("Ann Lee", "", 1))
    assert not example.is_right(reply("Dr. Ann", "", 1))
    assert not example.is_right("Ann Lee")
