"""A conversation to the ids and the mask that the model is trained on (S-03 to S-07)."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .config import DataConfig, LoadedConfig
from .encode import Encoder, mask_of
from .errors import BadInput
from .examples import ConversationReader, Messages
from .render import Renderer
from .tokenizer import TokenizerFile, load_tokenizer


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """One example after truncation (S-07); `text` is what was rendered."""

    id: str
    text: str
    ids: list[int]
    mask: list[int]
    num_tokens_before_truncation: int
    typed_control_tokens: int


@dataclass(frozen=True, kw_only=True)
class Preparer:
    """Template and tokenizer of a run."""

    renderer: Renderer
    encoder: Encoder
    mask: str
    max_length: int  # tokens
    truncation_side: str

    def prepare(self, id: str, messages: Messages, where: str) -> Prepared:
        """Renders, encodes, masks and truncates; `where` (file:line) is for messages.

        Raises:
            BadInput: the conversation cannot be rendered or encoded, or has no token.
        """
        rendered = self.renderer.render(messages, where)
        try:
            encoding = self.encoder.encode(rendered.text)
        except BadInput as error:
            raise BadInput(f"{where}: {error}") from error
        mask = mask_of(encoding, rendered.spans, self.mask)
        if not encoding.ids:
            raise BadInput(
                f"{where}: an example has at least one token (S-05), this one has none; remove it"
            )
        return Prepared(
            id=id,
            text=rendered.text,
            ids=self._truncate(encoding.ids),
            mask=self._truncate(mask),
            num_tokens_before_truncation=len(encoding.ids),
            typed_control_tokens=sum(
                self.encoder.count_added(message["content"]) for message in messages
            ),
        )

    def _truncate(self, values: list[int]) -> list[int]:
        return (
            values[: self.max_length]
            if self.truncation_side == "right"
            else values[-self.max_length :]
        )


@dataclass(frozen=True, kw_only=True)
class LoadedInputs:
    """The template and the tokenizer of a run, with the hashes of the bytes that were read."""

    preparer: Preparer
    tokenizer: TokenizerFile
    pad_id: int
    template_bytes: bytes
    template_sha256: str


def load_inputs(config: LoadedConfig) -> LoadedInputs:
    """Reads the template and the tokenizer that the config names (S-03, S-05).

    Raises:
        BadInput: one of them is refused, or bos_token, eos_token or pad_token is not a token
        (S-01).
    """
    data = config.run.data
    path = config.resolve(data.template)
    try:
        template_bytes = path.read_bytes()
        source = template_bytes.decode("utf-8")
    except OSError as error:
        raise BadInput(
            f"{path}: the template cannot be read ({error.strerror}); check data.template"
        ) from error
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path}: a template is UTF-8, byte {error.start} is not; save it as UTF-8"
        ) from error
    tokenizer = load_tokenizer(config.resolve(data.tokenizer))
    pad_id = tokenizer.id_of(data.pad_token, "data.pad_token")
    for key, token in (("data.bos_token", data.bos_token), ("data.eos_token", data.eos_token)):
        if token:
            tokenizer.id_of(token, key)
    return LoadedInputs(
        preparer=make_preparer(source, str(path), tokenizer, data),
        tokenizer=tokenizer,
        pad_id=pad_id,
        template_bytes=template_bytes,
        template_sha256=hashlib.sha256(template_bytes).hexdigest(),
    )


def make_preparer(source: str, name: str, tokenizer: TokenizerFile, data: DataConfig) -> Preparer:
    """A preparer for a template's source; `name` is for messages."""
    return Preparer(
        renderer=Renderer(
            source=source,
            name=name,
            bos_token=data.bos_token,
            eos_token=data.eos_token,
            mask=data.mask,
        ),
        encoder=Encoder(tokenizer),
        mask=data.mask,
        max_length=data.max_length,
        truncation_side=data.truncation_side,
    )


def prepare_split(
    reader: ConversationReader, paths: Sequence[Path], preparer: Preparer
) -> Iterator[Prepared]:
    """The examples of a split in file order, each prepared when it is asked for."""
    for example in reader.read(paths):
        yield preparer.prepare(example.id, example.messages, f"{example.file}:{example.line}")
