"""Which intent a question has, and what an intent means for the walk."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.graph.intents import EDGES, INTENTS, MAX_INTENTS, WEIGHTS, infer, weights

TUNED = """
why         Why did the deployment fail last night?
why         What caused the outage in the payment service?
why         What led to the decision to refund the customer?
why         How come the agent called the weather tool twice?
why         What was the reason for cancelling order 4411?
why         What triggered the alert on Friday?
why         Explain why the invoice was rejected
why         Which change made the tests go red, and why?
why         What went wrong with the import?
why         The agent gave up after three attempts. What was the root cause?
when        When did Alice move to Paris?
when        What happened after the user asked for a refund?
when        What did the agent do right before it crashed?
when        Show me the timeline of the incident
when        How long did the migration take?
when        In what order were the tools called?
when        What was the last time we spoke to Acme?
when        What happened yesterday between 3 and 4 pm?
when        Since when is the contract valid?
when        On which day was the key rotated?
what        What is the status of order 4411?
what        What tools did the agent use?
what        Which documents were read to answer the question?
what        What did the search return?
what        What is the capital of the new region we set up?
what        List all files that mention the retention policy
what        Which model was used for the summary?
what        What does the contract say about termination?
what        Where does Alice live?
what        What was in the payload of that call?
related     Have we seen similar incidents?
related     Find questions like this one
related     What else is related to the Acme contract?
related     Show other tickets with the same error
related     Is there anything comparable in the past sessions?
related     Which conversations resemble this one?
related     Are there duplicates of this bug report?
related     What do these two failures have in common?
related     Has anybody had this problem before? Show cases like it
related     Anything associated with project Falcon?
who_is      Who is Alice Johnson?
who_is      Who's the account manager for Acme?
who_is      Who approved the change set?
who_is      Tell me who wrote the report
who_is      Which customer complained about billing?
who_is      Whose key was used?
who_is      Who else was in the meeting with Bob?
who_is      Who does Carol report to?
how_does    How does the billing pipeline work?
how_does    How do I reset a user's password?
how_does    Walk me through the refund process
how_does    How was the report generated?
how_does    What are the steps to restore a backup?
how_does    Explain how the agent picks a tool
how_does    How can we deploy without downtime?
how_does    Describe the workflow for onboarding a client
how_does    What is the usual way to escalate a ticket?
personalize What do I usually order for lunch?
personalize Recommend a restaurant for me
personalize What are my preferences for meeting times?
personalize Which airline does the user prefer?
personalize Draft the e-mail in my usual style
personalize What do you remember about me?
personalize Suggest a gift that Alice would like
personalize Based on what you know, what should I cook tonight?
general     Summarise this session
general     Hello there
general     Give me an overview
general     Continue
general     Anything new?
general     Is the server up?
general     Tell me a joke
why         For what reason was Bob's access revoked?
why         Why does the nightly job keep timing out?
why         What is behind the drop in sign-ups?
why         How did we end up with two invoices for Acme?
when        When is the next review due?
when        What came next after the password reset?
when        How many days passed until the supplier replied?
what        What do we know about the Falcon project?
what        Which API key scopes does the staging server need?
what        Where is the onboarding guide stored?
related     Did something like this happen with other suppliers?
related     Find past runs close to this one
who_is      Who signed off on the budget?
who_is      What is Maria's role at Acme?
how_does    How is a memory promoted to the persistent tier?
how_does    What happens internally during a checkpoint restore?
personalize Plan a weekend trip I would enjoy
personalize Does the customer want replies in German?
general     Thanks, that helps
general     Start over
"""

HELD = """
why         Why did Carol's refund take three attempts?
why         What prompted the agent to search the web?
why         What's the explanation for the duplicate charge?
when        When was the last backup verified?
when        How soon after the release did the errors start?
when        What did the user ask first, and what then?
what        What is stored under the key `region`?
what        Which retriever returned the stale document?
what        What did Alice say about the budget?
what        Where was the meeting held?
related     Show me sessions comparable to this one
related     Which past decisions are connected with this contract?
who_is      Who owns the staging database?
who_is      Who is behind the handle @nightowl?
how_does    How do seals prove that nothing was changed?
how_does    How should an agent hand over to a human?
personalize What would Alice like for her birthday?
personalize Keep the answer short, as I always ask
general     Good morning
general     Can you help?
"""
"""Written after the rules were settled, and not used to change them."""


def accuracy(labelled: str) -> float:
    rows = [line.split(maxsplit=1) for line in labelled.strip().splitlines()]
    return sum(next(iter(infer(question).intents)) == intent for intent, question in rows) / len(rows)


def test_at_least_85_of_100_questions_are_understood() -> None:
    assert len(TUNED.strip().splitlines()) >= 60
    assert accuracy(TUNED) >= 0.85
    assert accuracy(HELD) >= 0.85


@pytest.mark.parametrize("question", [line.split(maxsplit=1)[1] for line in TUNED.strip().splitlines()])
def test_the_best_intent_comes_first_and_doubt_is_left(question: str) -> None:
    confidences = list(infer(question).intents.values())
    assert confidences == sorted(confidences, reverse=True)
    assert sum(confidences) < 1 or confidences == [1.0]


def test_the_answer_says_which_words_decided() -> None:
    assert infer("Why did it stop?").how == 'why by "why"'
    assert infer("Hello there").how == "no word of the question tells"
    both = infer("When did it stop, and why?")
    assert set(both.intents) == {"why", "when"}
    assert both.how == 'why by "why"; when by "when"'


def test_a_question_without_a_cue_is_general() -> None:
    for question in ("", "   ", "?", "北京的天气怎么样", "ok"):
        assert infer(question).intents == {"general": 1.0}


@given(
    st.text(max_size=300)
    | st.lists(st.sampled_from(["why", "when", "what", "who", "how", "my", "like", "is", "the", "did"])).map(" ".join)
)
def test_any_text_is_a_question(question: str) -> None:
    intents = infer(question).intents
    assert 1 <= len(intents) <= MAX_INTENTS
    assert set(intents) <= set(INTENTS)
    assert all(0 < confidence <= 1 for confidence in intents.values())
    assert sum(intents.values()) <= 1 + 1e-9
    assert all(1 <= weight <= 5 for weight in weights(intents).values())


def test_the_weights_that_the_specification_names() -> None:
    assert dict(WEIGHTS["why"]) == {
        "CAUSED_BY": 5,
        "REFERENCES": 2,
        "SIMILAR_TO": 1.5,
        "FOLLOWS": 1,
        "SUMMARIZES": 1,
        "DERIVED_FROM": 1,
        "SAME_AS": 1,
    }
    for intent, edge in (("when", "FOLLOWS"), ("what", "REFERENCES"), ("related", "SIMILAR_TO")):
        assert {name for name, weight in WEIGHTS[intent].items() if weight != 1} == {edge}
        assert WEIGHTS[intent][edge] == 5


def test_the_weights_are_documented() -> None:
    lines = (Path(__file__).parents[2] / "docs" / "reference" / "intents.md").read_text().splitlines()
    table = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    edges = table[0][1:-1]
    documented = {row[0]: dict(zip(edges, map(float, row[1:-1]), strict=True)) for row in table[2:]}
    assert documented == {
        intent: {edge: weight for edge, weight in own.items() if edge != "SAME_AS"} for intent, own in WEIGHTS.items()
    }


def test_every_intent_weighs_every_edge() -> None:
    assert set(WEIGHTS) == set(INTENTS)
    for own in WEIGHTS.values():
        assert set(own) == set(EDGES)
        assert all(1 <= weight <= 5 for weight in own.values())


def test_weights_blend_by_confidence_and_the_rest_is_general() -> None:
    assert weights({"why": 1.0}) == dict(WEIGHTS["why"])
    assert weights({}) == weights({"general": 1.0}) == dict(WEIGHTS["general"])
    half = weights({"why": 0.5})
    assert half["CAUSED_BY"] == 3
    assert half["FOLLOWS"] == 1
    both = weights({"why": 0.5, "when": 0.25})
    assert math.isclose(both["CAUSED_BY"], 3)
    assert math.isclose(both["FOLLOWS"], 2)
