"""Sets of a few turns in both shapes, small enough to know what must come out."""

import json
from pathlib import Path
from typing import Any

Item = dict[str, Any]


def locomo() -> list[Item]:
    return [
        {
            "sample_id": "talk-1",
            "conversation": {
                "speaker_a": "Mira",
                "speaker_b": "Jon",
                "session_1_date_time": "1:56 pm on 8 May, 2023",
                "session_1": [
                    {"speaker": "Mira", "dia_id": "D1:1", "text": "I adopted a parrot named Zorro."},
                    {"speaker": "Jon", "dia_id": "D1:2", "text": "Lovely!", "blip_caption": "a green parrot"},
                ],
                "session_2_date_time": "12:09 am on 13 September, 2023",
                "session_2": [
                    {"speaker": "Jon", "dia_id": "D2:1", "text": "I broke my ankle while skiing in Norway."},
                    {"speaker": "Mira", "dia_id": "D2:2", "text": "Get well soon, and mind the stairs."},
                ],
                "session_3_date_time": "9:00 am on 1 October, 2023",
            },
            "qa": [
                {"question": "What is Mira's parrot called?", "answer": "Zorro", "evidence": ["D1:1"], "category": 4},
                {"question": "Who broke an ankle, and who has a parrot?", "evidence": ["D2:01; D:1:1"], "category": 1},
                {"question": "What did Jon cook?", "adversarial_answer": 7, "evidence": ["D9:9"], "category": 5},
            ],
        }
    ]


def longmemeval() -> list[Item]:
    return [
        {
            "question_id": "q1",
            "question_type": "single-session-user",
            "question": "Which instrument do I play?",
            "answer": "the cello",
            "question_date": "2023/06/01 (Thu) 10:00",
            "haystack_session_ids": ["later", "earlier"],
            "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/01 (Mon) 09:00"],
            "haystack_sessions": [
                [
                    {"role": "user", "content": "What can I cook with leeks?"},
                    {"role": "assistant", "content": "Soup, a tart, or leeks with mustard."},
                ],
                [
                    {"role": "user", "content": "I play the cello as an instrument.", "has_answer": True},
                    {"role": "assistant", "content": " "},
                    {"role": "assistant", "content": "How wonderful!", "has_answer": False},
                ],
            ],
            "answer_session_ids": ["earlier"],
        },
        {
            "question_id": "q2_abs",
            "question_type": "temporal",
            "question": "When did I buy a boat?",
            "answer": "You did not say so.",
            "question_date": "2023/06/01 (Thu) 10:00",
            "haystack_session_ids": ["only"],
            "haystack_dates": ["2023/05/20 (Sat) 02:21"],
            "haystack_sessions": [[{"role": "user", "content": "I bought a bicycle.", "has_answer": True}]],
            "answer_session_ids": ["only"],
        },
    ]


def written(folder: Path, items: object) -> Path:
    path = folder / "set.json"
    path.write_text(json.dumps(items), "utf-8")
    return path
