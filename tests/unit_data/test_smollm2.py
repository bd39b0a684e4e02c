"""SmolLM2 from GGUF: row order by hand, templates in both engines, and plain English as judge."""

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from data.smollm2 import prepare
from data.smollm2.gguf_file import hugging_face_name, unpermute
from data.smollm2.tokenizer import mark_generation
from tests.unit_data.conftest import Row
from tests.unit_data.test_templates import recover, through_minijinja, through_transformers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("smollm2")
    assert prepare.main(["--tokenizer-only", "--out", str(path)]) == 0
    return path


def test_unpermute_separates_interleaved_halves_of_each_head() -> None:
    # Two heads of width 6; Hugging Face's rows 0..5 are stored as 0 3 1 4 2 5.
    stored = np.array([0, 3, 1, 4, 2, 5, 10, 13, 11, 14, 12, 15], np.float32)[:, None]
    expected = [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15]
    assert unpermute(stored, num_heads=2)[:, 0].tolist() == expected


def test_names_are_hugging_faces() -> None:
    assert hugging_face_name("blk.12.attn_q.weight") == "model.layers.12.self_attn.q_proj.weight"
    assert hugging_face_name("output_norm.weight") == "model.norm.weight"
    with pytest.raises(ValueError, match="rope_freqs"):
        hugging_face_name("rope_freqs.weight")


def test_a_template_that_writes_turns_otherwise_is_refused() -> None:
    with pytest.raises(ValueError, match="exactly once"):
        mark_generation("{{ messages }}")


def test_tokenizer_has_the_published_size_control_tokens_and_lone_digits(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 49152
    assert tokenizer.encode("<|endoftext|><|im_start|><|im_end|>").ids == [0, 1, 2]
    assert tokenizer.encode("2026").tokens == ["2", "0", "2", "6"]
    assert tokenizer.encode("hello world").tokens == ["hello", "Ġworld"]


def test_tokenizer_brings_every_edge_content_back(folder: Path, edge: dict[str, Row]) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for row in edge.values():
        for message in row["messages"]:
            ids = tokenizer.encode(message["content"]).ids
            assert tokenizer.decode(ids, skip_special_tokens=False) == message["content"], row["id"]


def test_marked_template_renders_what_the_shipped_one_does(
    folder: Path, edge: dict[str, Row], sample: dict[str, list[Row]]
) -> None:
    shipped = (folder / "chat_template.jinja").read_bytes().decode()
    marked = (folder / "chat_template.generation.jinja").read_bytes().decode()
    for row in [*edge.values(), *sample["train"][:100]]:
        text, spans = through_transformers(marked, row["messages"])
        assert text == through_minijinja(shipped, row["messages"])
        assert (text, spans) == recover(through_minijinja(marked, row["messages"]))
        answers = [m["content"] for m in row["messages"] if m["role"] == "assistant"]
        assert [text[a:b] for a, b in spans] == [f"{answer}<|im_end|>" for answer in answers]


@pytest.mark.slow
def test_weights_speak_english(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    assert prepare.main(["--out", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "config.json").read_bytes())["tie_word_embeddings"] is True
    model = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = (
        "The heart is a muscular organ that pumps blood through the blood vessels of the "
        "circulatory system. The blood carries oxygen and nutrients to the body, while carrying "
        "metabolic waste such as carbon dioxide to the lungs."
    )
    ids = torch.tensor([tokenizer.encode(text).ids])
    with torch.no_grad():
        perplexity = float(model(ids, labels=ids).loss.exp())
        answer = model(torch.tensor([tokenizer.encode("The capital of France is").ids])).logits
    # As stored in GGUF, with query and key rows still interleaved, it is about 24.
    assert perplexity < 10
    assert tokenizer.decode([int(answer[0, -1].argmax())]) == " Paris"
