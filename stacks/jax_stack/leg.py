"""What the loop of a training leg needs, and the facts read back from it (S-13, S-25)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .batch import START, Batch, Position, RowLayout, Tokens, TrainingData, eval_batches
from .config import LoadedConfig, RunConfig
from .errors import BadInput
from .model import (
    LanguageModel,
    Params,
    abstract_model,
    make_context,
    parameter_shapes,
    with_parameters,
)
from .precision import PRECISIONS
from .prepare import LoadedInputs
from .snapshot import SavedState, Snapshot
from .splits import Splits
from .step import State, StepArrays, Trainer
from .trace import Trace
from .update import (
    adam_state,
    check_frozen,
    is_trainable,
    learning_rates,
    make_optimizer,
    with_moments,
)
from .weights import Checkpoint, match_tensors


@dataclass(kw_only=True)
class Leg:
    """Everything that the loop needs; `state` is replaced by each step."""

    config: LoadedConfig
    trace: Trace
    trainer: Trainer
    state: State
    data: TrainingData
    eval_data: list[Batch]
    rates: list[float]
    num_updates: int
    position: Position

    @property
    def run(self) -> RunConfig:
        """The run config."""
        return self.config.run

    def parameters(self) -> Params:
        """All parameters, trainable and frozen."""
        return self.trainer.parameters(self.state)

    def snapshot(self) -> Snapshot:
        """The state as it is (S-23), on the device still."""
        adam = adam_state(self.state.optimizer)
        return Snapshot(
            num_updates=self.num_updates,
            position=self.position,
            params=self.parameters(),
            m=adam.mu,
            v=adam.nu,
            config_sha256=self.config.sha256,
        )


def check_vocabulary(inputs: LoadedInputs, checkpoint: Checkpoint) -> None:
    """Refuses a tokenizer that can produce an id without a row in the embedding (S-05)."""
    highest, size = inputs.tokenizer.highest_id(), checkpoint.architecture.vocab_size
    if highest >= size:
        raise BadInput(
            "every id is below the model's vocab_size (S-05), but the tokenizer has "
            f"{highest} and vocab_size is {size}; use the tokenizer of the checkpoint"
        )


def make_trainer(run: RunConfig, model: LanguageModel) -> Trainer:
    """The step and the optimizer of a run; `place` puts a state beside them.

    Raises:
        BadInput: an entry of `optimizer.frozen` begins no parameter's name.
    """
    shapes = parameter_shapes(model)
    check_frozen(shapes, run.optimizer.frozen)
    trainable = {n: shapes[n] for n in shapes if is_trainable(n, run.optimizer.frozen)}
    return Trainer(
        model=model,
        optimizer=make_optimizer(run.optimizer, trainable),
        attention=run.model.attention,
        clip_norm=run.optimizer.clip_norm,
        precision=PRECISIONS[run.train.precision],
        frozen={},
    )


def initial_parameters(trainer: Trainer, checkpoint: Checkpoint) -> Params:
    """The parameters of the checkpoint, rounded to what the run holds (S-13)."""
    values: dict[str, np.ndarray] = match_tensors(
        checkpoint, parameter_shapes(trainer.model), trainer.precision.held
    )
    initial = {name: jnp.asarray(value) for name, value in values.items()}
    return initial


def place(trainer: Trainer, params: Params, saved: SavedState | None) -> State:
    """The state of a run with these parameters and the moments of `saved`, zero at the start.

    The tensors that are frozen go to the trainer.
    """
    optimizer = trainer.optimizer
    trainable = {name: params[name] for name in params if name in optimizer.decay_mask}
    trainer.frozen = {name: params[name] for name in params if name not in trainable}
    if saved:
        m, v = ({name: saved.array(kind, name) for name in trainable} for kind in ("m", "v"))
        empty = jax.eval_shape(optimizer.transformation.init, trainable)
        return State(trainable, with_moments(empty, m, v, saved.num_updates))
    optimizer_state = optimizer.transformation.init(trainable)
    return State(trainable, optimizer_state)


def place_saved(trainer: Trainer, saved: SavedState) -> State:
    """The state that a snapshot holds (S-23), one tensor in memory twice at a time."""
    names = parameter_shapes(trainer.model)
    return place(trainer, {name: saved.array("param", name) for name in names}, saved)


def make_leg(
    config: LoadedConfig,
    inputs: LoadedInputs,
    splits: Splits,
    checkpoint: Checkpoint,
    trace: Trace,
    found: SavedState | None,
) -> Leg:
    """Model, optimizer and data at the state of `found`, or of the checkpoint."""
    run = config.run
    trainer = make_trainer(run, abstract_model(checkpoint.architecture))
    initial = initial_parameters(trainer, checkpoint)
    return Leg(
        config=config,
        trace=trace,
        trainer=trainer,
        state=place_saved(trainer, found) if found else place(trainer, initial, None),
        data=_training_data(run, inputs.pad_id, splits.kept["train"]),
        eval_data=list(
            eval_batches(splits.kept["eval"], row_layout(run, inputs.pad_id, accumulation_steps=1))
        ),
        rates=learning_rates(run.schedule, run.optimizer.learning_rate, run.train.num_steps),
        num_updates=found.num_updates if found else 0,
        position=found.position if found else START,
    )


def row_layout(run: RunConfig, pad_id: int, accumulation_steps: int) -> RowLayout:
    """How rows of a run become arrays."""
    return RowLayout(
        pad_id=pad_id,
        padding_side=run.data.padding_side,
        pad_multiple=run.data.pad_multiple,
        micro_batch_size=run.train.micro_batch_size,
        accumulation_steps=accumulation_steps,
    )


def _training_data(run: RunConfig, pad_id: int, examples: list[Tokens]) -> TrainingData:
    ids = [tokens.id for tokens in examples]
    return training_data(run, pad_id, ids, examples.__getitem__)


def training_data(
    run: RunConfig, pad_id: int, ids: Sequence[str], tokens_of: Callable[[int], Tokens]
) -> TrainingData:
    """The steps of a run over these examples."""
    return TrainingData(
        ids=ids,
        tokens_of=tokens_of,
        seed=run.seed,
        max_length=run.data.max_length,
        packing=run.data.packing,
        layout=row_layout(run, pad_id, run.train.accumulation_steps),
    )


def leg_facts(leg: Leg, arrays: StepArrays) -> dict[str, Any]:
    """The facts of a training leg, read from the module, the optimizer and the compiled step."""
    outputs = leg.trainer.compiled_step(leg.state, arrays).outputs
    return {
        "rows_per_step": arrays.labels.shape[0] * arrays.labels.shape[1],
        "steps_per_epoch": leg.data.steps_of(0),
        "num_steps": len(leg.rates),
        **trainer_facts(leg.trainer, leg.state, arrays, outputs),
    }


def trainer_facts(
    trainer: Trainer, state: State, arrays: StepArrays, outputs: Any
) -> dict[str, Any]:
    """The facts of a state and of the program that will change it; `outputs` are those of it."""
    params, optimizer = trainer.parameters(state), trainer.optimizer
    moments = adam_state(state.optimizer).mu
    return {
        "parameters": {
            name: {
                "shape": list(value.shape),
                "trainable": name in moments,
                "decay": optimizer.decay_mask.get(name, False),
            }
            for name, value in params.items()
        },
        "num_parameters": sum(value.size for value in params.values()),
        "num_trainable_parameters": sum(value.size for value in moments.values()),
        "model": model_facts(trainer.model),
        "optimizer": {
            "name": "adamw",
            "beta1": optimizer.beta1,
            "beta2": optimizer.beta2,
            "epsilon": optimizer.epsilon,
            "weight_decay": optimizer.weight_decay,
        },
        "dtypes": _dtype_facts(trainer, params, arrays, outputs),
    }


def model_facts(model: LanguageModel) -> dict[str, Any]:
    """Sizes as the module has them."""
    layer = model.model.layers[0]
    vocab_size, hidden_size = model.model.embed_tokens.weight.shape
    head_dim = layer.self_attn.head_dim
    return {
        "hidden_size": hidden_size,
        "intermediate_size": layer.mlp.gate_proj.weight.shape[0],
        "num_layers": len(model.model.layers),
        "num_heads": layer.self_attn.q_proj.weight.shape[0] // head_dim,
        "num_kv_heads": layer.self_attn.k_proj.weight.shape[0] // head_dim,
        "head_dim": head_dim,
        "vocab_size": vocab_size,
        "rope_base": model.architecture.rope_base,
        "rms_norm_eps": model.model.norm.epsilon,
        "tied": not hasattr(model, "lm_head"),
    }


def _dtype_facts(
    trainer: Trainer, params: Params, arrays: StepArrays, outputs: Any
) -> dict[str, str]:
    """Names of dtypes: of the arrays that the step was compiled for and of what it returns."""
    state, grads, scalars = outputs
    micro = StepArrays(*(array[0] for array in arrays))

    def taps(params: Params) -> tuple[Float[Array, "B T D"], Float[Array, "B T V"]]:
        live = with_parameters(trainer.model, params)
        context = make_context(
            live.architecture,
            micro.segments,
            micro.positions,
            trainer.attention,
            trainer.precision,
        )
        hidden = live.hidden(micro.input_ids, context)
        return hidden, live.logits(hidden)

    hidden, logits = jax.eval_shape(taps, params)
    loss = scalars.loss.dtype.name
    return {
        "param": _one_dtype(state.trainable | trainer.frozen, loss),
        "grad": _one_dtype(grads, loss),
        "moment": _one_dtype(
            {"m": adam_state(state.optimizer).mu, "v": adam_state(state.optimizer).nu}, loss
        ),
        "activation": hidden.dtype.name,
        "logits": logits.dtype.name,
        "loss": loss,
    }


def _one_dtype(tree: Any, when_empty: str) -> str:
    """The dtype that all arrays of a tree share, or all of them joined by `+`."""
    return "+".join(sorted({leaf.dtype.name for leaf in jax.tree.leaves(tree)})) or when_empty
