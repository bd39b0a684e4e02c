"""`transformers.Trainer` on the rows of a trace: the contestant of `benchmarks.torch_leg`. Prints
seconds as JSON.

python -m benchmarks.trainer TRACE CHECKPOINT WARM_STEPS
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from transformers import LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

IGNORED = -100


class Clock(TrainerCallback):
    """Takes the time at the end of the last warm-up step and at the end of training."""

    def __init__(self, warm_steps: int) -> None:
        self.warm_steps = warm_steps
        self.began = self.ended = 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock when the warm-up is over."""
        self.ended = time.perf_counter()
        if state.global_step == self.warm_steps:
            self.began = self.ended


def micro_batches(trace: Path) -> list[dict[str, torch.Tensor]]:
    """Return the micro-batches of the trace in order, padded as the leg padded them."""
    rows: dict[str, tuple[list[int], list[int]]] = {}
    for file in sorted((trace / "tokens").glob("*.parquet")):
        table = pq.read_table(file, columns=["id", "ids", "mask"]).to_pydict()
        rows |= dict(zip(table["id"], zip(table["ids"], table["mask"], strict=True), strict=True))
    batches = []
    for line in (trace / "steps.jsonl").read_text("utf-8").splitlines():
        step = json.loads(line)
        num_micro, num_rows, length = step["batch_shape"]
        for micro in range(num_micro):
            chosen = step["examples"][micro * num_rows : (micro + 1) * num_rows]
            ids = torch.zeros(len(chosen), length, dtype=torch.long)
            labels = torch.full((len(chosen), length), IGNORED)
            attention = torch.zeros(len(chosen), length, dtype=torch.long)
            for row, example in enumerate(chosen):
                tokens, mask = (torch.tensor(values) for values in rows[example])
                ids[row, : len(tokens)] = tokens
                attention[row, : len(tokens)] = 1
                labels[row, : len(tokens)] = torch.where(mask == 1, tokens, IGNORED)
            batches.append({"input_ids": ids, "attention_mask": attention, "labels": labels})
    return batches


def main() -> None:
    """Train and print the seconds between the warm-up's end and the last step's end."""
    trace, checkpoint, warm_steps = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    batches = micro_batches(trace)
    steps = [json.loads(line) for line in (trace / "steps.jsonl").read_text("utf-8").splitlines()]
    model = LlamaForCausalLM.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="sdpa"
    )
    clock = Clock(warm_steps)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=steps[0]["batch_shape"][0],
            max_steps=len(steps),
            learning_rate=3e-4,
            weight_decay=0.1,
            max_grad_norm=1.0,
            lr_scheduler_type="cosine",
            warmup_steps=10,
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            dataloader_num_workers=0,
        )

        class Ordered(Trainer):
            """Takes the batches in the trace's order."""

            def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
                return torch.utils.data.SequentialSampler(batches)

        Ordered(
            model=model,
            args=arguments,
            train_dataset=batches,
            data_collator=lambda items: items[0],
            callbacks=[clock],
        ).train()
    print(json.dumps({"seconds": clock.ended - clock.began}))


if __name__ == "__main__":
    main()
