"""What a run config comes to, for `oracle check`: inputs, sizes, steps, parameters."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from oracle.checkpoint import head_dim
from oracle.inputs import Inputs
from oracle.stacks import Stack


def print_inputs(inputs: Inputs, stacks: tuple[Stack, Stack], console: Console) -> None:
    """Print a table of what will run."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in rows(inputs, stacks):
        table.add_row(key, value)
    console.print(table, markup=False, highlight=False)


def rows(inputs: Inputs, stacks: tuple[Stack, Stack]) -> list[tuple[str, str]]:
    """Return (what, how much) in the order of the pipeline."""
    config, values = inputs.config, inputs.config.values
    data, train = values["data"], values["train"]
    found = [
        ("config", f"{config.path} · {config.sha256[:12]}"),
        ("legs", " and ".join(f"{stack.name} ({' '.join(stack.argv)})" for stack in stacks)),
    ]
    for split, files in inputs.splits.items():
        num_bytes = sum(size.num_bytes for _, size in files)
        names = ", ".join(path.name for path, _ in files)
        found.append(
            (split, f"{inputs.num_examples(split):,} examples · {megabytes(num_bytes)} · {names}")
        )
    blocks = f"{inputs.num_generation_blocks} generation blocks"
    found += [
        ("template", f"{data['template']} · mask {data['mask']} · {blocks}"),
        (
            "tokenizer",
            f"{len(inputs.tokenizer.tokens):,} tokens, {inputs.tokenizer.num_added} added, "
            f"ids up to {inputs.tokenizer.largest_id}",
        ),
        ("model", model_words(inputs)),
        (
            "batch",
            f"{train['accumulation_steps']} × {train['micro_batch_size']} rows a step · at most "
            f"{data['max_length']} tokens · padded {data['padding_side']} to multiples of "
            f"{data['pad_multiple']} · {'packed' if data['packing'] else 'not packed'}",
        ),
        ("steps", steps_words(inputs)),
        ("optimizer", optimizer_words(inputs)),
        ("precision", f"{train['precision']} · {values['runtime']['device']}"),
    ]
    return found


def model_words(inputs: Inputs) -> str:
    """Return the model's parameters and shape."""
    c = inputs.checkpoint.config
    tied = "tied" if c["tie_word_embeddings"] else "untied"
    return (
        f"{c['model_type']} · {inputs.checkpoint.num_parameters:,} parameters, "
        f"{inputs.num_trainable_parameters:,} trainable · {c['num_hidden_layers']} layers, width "
        f"{c['hidden_size']}, {c['num_attention_heads']} heads of {head_dim(c)}, "
        f"{c['num_key_value_heads']} key/value heads, vocabulary {c['vocab_size']:,}, {tied} · "
        f"stored in {', '.join(inputs.checkpoint.dtypes)}"
    )


def steps_words(inputs: Inputs) -> str:
    """Return the steps of the run, and what part of the data they see."""
    num_steps = inputs.config.num_steps
    if inputs.steps_per_epoch is None:
        return f"{num_steps:,} · steps of an epoch depend on the packing"
    epochs = num_steps / inputs.steps_per_epoch
    return f"{num_steps:,} · {inputs.steps_per_epoch:,} an epoch · {epochs:.2f} epochs"


def optimizer_words(inputs: Inputs) -> str:
    """Return optimizer and schedule."""
    optimizer, schedule = inputs.config.values["optimizer"], inputs.config.values["schedule"]
    return (
        f"AdamW {optimizer['learning_rate']:g} · {schedule['kind']} after "
        f"{schedule['warmup_steps']} warm-up steps · decay {optimizer['weight_decay']:g} on "
        f"{optimizer['decay']} · clip {optimizer['clip_norm']}"
    )


def megabytes(num_bytes: int) -> str:
    """Return a size in kB or MB."""
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e6 else f"{num_bytes / 1e3:.1f} kB"
