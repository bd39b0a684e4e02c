"""The SmolLM2 tokenizer and its chat templates, from the metadata of a GGUF file."""

from typing import Any

from data.smollm2.gguf_file import GgufFile

CONTROL_TYPE = 3
"""`LLAMA_TOKEN_TYPE_CONTROL`: a token that text cannot spell."""

SHIPPED_TURN = (
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
)
"""As shipped: the newlines are raw ones inside Jinja's quotes, not escapes."""
MARKED_TURN = (
    "{% if message['role'] == 'assistant' %}{{ '<|im_start|>assistant\n' }}"
    "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}"
    "{% else %}" + SHIPPED_TURN + "{% endif %}"
)


def added_tokens(file: GgufFile) -> list[dict[str, Any]]:
    """The control tokens, as tokenizer.json lists them."""
    tokens, types = file.field("tokenizer.ggml.tokens"), file.field("tokenizer.ggml.token_type")
    return [
        {
            "id": number,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for number, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind == CONTROL_TYPE
    ]


def tokenizer_json(file: GgufFile) -> dict[str, Any]:
    """The content of tokenizer.json: digits alone, then GPT-2's byte-level pattern, then BPE."""
    model, kind = file.field("tokenizer.ggml.model"), file.field("tokenizer.ggml.pre")
    if (model, kind) != ("gpt2", "smollm"):
        raise ValueError(
            f"{file.path.name} holds a tokenizer of kind {model}/{kind}, not gpt2/smollm"
        )
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens(file),
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {**byte_level, "use_regex": True},
            ],
        },
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {t: i for i, t in enumerate(file.field("tokenizer.ggml.tokens"))},
            "merges": [merge.split(" ") for merge in file.field("tokenizer.ggml.merges")],
        },
    }


def mark_generation(template: str) -> str:
    """The shipped template with generation tags around the assistant's content and end of turn.

    Only the shipped expression of a turn is replaced, so every other byte is kept; ValueError when
    it is not there exactly once.
    """
    if template.count(SHIPPED_TURN) != 1:
        raise ValueError(
            "the chat template does not write a turn in the known way, "
            f"exactly once: {SHIPPED_TURN}"
        )
    return template.replace(SHIPPED_TURN, MARKED_TURN)
