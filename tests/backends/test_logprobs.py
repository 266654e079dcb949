"""Scores in OpenAI's two shapes."""

from backends.logprobs import Candidate, Scored, chat_document, text_document

CAFE = [
    Scored(Candidate(b" caf", -0.1), (Candidate(b" caf", -0.1), Candidate(b"\xc3", -3.0)), 0),
    Scored(Candidate(b"\xc3", -2.0), (Candidate(b"x", -0.5),), 4),
]


def test_a_chat_shows_each_token_with_its_bytes_and_the_likeliest() -> None:
    assert chat_document(CAFE) == {
        "content": [
            {
                "token": " caf",
                "logprob": -0.1,
                "bytes": [32, 99, 97, 102],
                "top_logprobs": [
                    {"token": " caf", "logprob": -0.1, "bytes": [32, 99, 97, 102]},
                    {"token": "bytes:\\xc3", "logprob": -3.0, "bytes": [0xC3]},
                ],
            },
            {
                "token": "bytes:\\xc3",
                "logprob": -2.0,
                "bytes": [0xC3],
                "top_logprobs": [{"token": "x", "logprob": -0.5, "bytes": [120]}],
            },
        ],
        "refusal": None,
    }


def test_completions_show_columns_and_the_drawn_token_is_always_among_the_likeliest() -> None:
    assert text_document(CAFE) == {
        "tokens": [" caf", "bytes:\\xc3"],
        "token_logprobs": [-0.1, -2.0],
        "top_logprobs": [{" caf": -0.1, "bytes:\\xc3": -3.0}, {"x": -0.5, "bytes:\\xc3": -2.0}],
        "text_offset": [0, 4],
    }


def test_of_two_tokens_with_one_name_the_likelier_is_shown() -> None:
    twice = Scored(Candidate(b"a", -5.0), (Candidate(b"a", -1.0), Candidate(b"a", -2.0)), 0)
    assert text_document([twice])["top_logprobs"] == [{"a": -1.0}]
