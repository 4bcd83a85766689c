"""The built-in models: the shapes of all their parameters, and what each part computes, from the architecture alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

#: What a built-in computes by unless told how long it takes: half of what an accelerator of 100 TFLOP/s promises.
FLOPS_PER_SECOND = 50e12

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Hold one layer: the shapes of its parameters, and the floating-point operations of forward for one sample."""

    name: str
    shapes: Shapes
    flops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Hold a model: its layers in forward order, and the samples (images, or sequences) of its usual micro-batch."""

    parts: Callable[[], Iterator[Part]]
    batch: int
    about: str


def _convolution(name: str, inputs: int, outputs: int, kernel: int, side: int) -> Part:
    shape = (outputs, inputs, kernel, kernel)
    return Part(name, (shape,), 2.0 * outputs * inputs * kernel**2 * side**2)


def _batch_norm(name: str, channels: int, side: int) -> Part:
    return Part(name, ((channels,), (channels,)), 4.0 * channels * side**2)


def resnet50() -> Iterator[Part]:
    """Yield the layers of ResNet-50 on images of 224 x 224, the stride in the 3 x 3 convolutions.

    He and others, Deep Residual Learning for Image Recognition, 2015; the stride and the names are torchvision's.
    """
    yield _convolution("conv1", 3, 64, 7, 112)
    yield _batch_norm("bn1", 64, 112)
    inputs, before = 64, 56
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), 1):
        side = 56 // 2 ** (stage - 1)
        outputs = 4 * width
        for block in range(blocks):
            name = f"layer{stage}.{block}"
            for number, (wide, high, kernel, at) in enumerate(
                ((inputs, width, 1, before), (width, width, 3, side), (width, outputs, 1, side)), 1
            ):
                yield _convolution(f"{name}.conv{number}", wide, high, kernel, at)
                yield _batch_norm(f"{name}.bn{number}", high, at)
            if block == 0:
                yield _convolution(f"{name}.downsample.0", inputs, outputs, 1, side)
                yield _batch_norm(f"{name}.downsample.1", outputs, side)
            inputs, before = outputs, side
    yield _linear("fc", 2048, 1000, 1)


def _linear(name: str, inputs: int, outputs: int, tokens: int, *, bias: bool = True, first: bool = False) -> Part:
    """Return a matrix as PyTorch keeps it, outputs first, or as GPT-2's code does (``first``: inputs first)."""
    matrix = (inputs, outputs) if first else (outputs, inputs)
    return Part(name, (matrix, (outputs,)) if bias else (matrix,), 2.0 * inputs * outputs * tokens)


def _norm(name: str, width: int, tokens: int, *, bias: bool = True) -> Part:
    return Part(name, ((width,), (width,)) if bias else ((width,),), 5.0 * width * tokens)


def _table(name: str, *rows: int, width: int, tokens: int) -> Part:
    """Return tables of embeddings: looking up and adding is all they do."""
    return Part(name, tuple((number, width) for number in rows), 1.0 * width * tokens * len(rows))


def _attention(name: str, width: int, tokens: int) -> Part:
    """Return what attention computes besides its matrices: scores, and the sum of values by them. No parameters."""
    return Part(name, (), 4.0 * tokens**2 * width)


def bert_large(tokens: int = 512) -> Iterator[Part]:
    """Yield the layers of BERT-large, uncased, with the pooler and without a head: 335 141 888 parameters.

    Devlin and others, BERT, 2018. Without the pooler there are 334 092 288, with the heads of its pre-training
    336 226 108.
    """
    width, inner = 1024, 4096
    yield _table("embeddings", 30522, 512, 2, width=width, tokens=tokens)
    yield _norm("embeddings.norm", width, tokens)
    for block in range(24):
        name = f"layer.{block}"
        for matrix in ("query", "key", "value"):
            yield _linear(f"{name}.{matrix}", width, width, tokens)
        yield _attention(f"{name}.attention", width, tokens)
        yield _linear(f"{name}.attention.output", width, width, tokens)
        yield _norm(f"{name}.attention.norm", width, tokens)
        yield _linear(f"{name}.intermediate", width, inner, tokens)
        yield _linear(f"{name}.output", inner, width, tokens)
        yield _norm(f"{name}.norm", width, tokens)
    yield _linear("pooler", width, width, 1)


def gpt2(tokens: int = 1024) -> Iterator[Part]:
    """Yield the layers of the small GPT-2: 124 439 808 parameters, the table of words used for the output too.

    Radford and others, Language Models are Unsupervised Multitask Learners, 2019. The gradient of a table that is used
    twice is complete only when the backward pass reaches its first use, so the output has no parameters of its own.
    """
    width, vocabulary = 768, 50257
    yield _table("wte", vocabulary, width=width, tokens=tokens)
    yield _table("wpe", 1024, width=width, tokens=tokens)
    for block in range(12):
        name = f"h.{block}"
        yield _norm(f"{name}.ln_1", width, tokens)
        yield _linear(f"{name}.attn.c_attn", width, 3 * width, tokens, first=True)
        yield _attention(f"{name}.attn", width, tokens)
        yield _linear(f"{name}.attn.c_proj", width, width, tokens, first=True)
        yield _norm(f"{name}.ln_2", width, tokens)
        yield _linear(f"{name}.mlp.c_fc", width, 4 * width, tokens, first=True)
        yield _linear(f"{name}.mlp.c_proj", 4 * width, width, tokens, first=True)
    yield _norm("ln_f", width, tokens)
    yield Part("lm_head", (), 2.0 * width * vocabulary * tokens)


def llama_7b(tokens: int = 2048) -> Iterator[Part]:
    """Yield the layers of LLaMA 7B: 6 738 415 616 parameters. Touvron and others, LLaMA, 2023."""
    width, inner, vocabulary = 4096, 11008, 32000
    yield _table("embed_tokens", vocabulary, width=width, tokens=tokens)
    for block in range(32):
        name = f"layers.{block}"
        yield _norm(f"{name}.input_layernorm", width, tokens, bias=False)
        for matrix in ("q_proj", "k_proj", "v_proj"):
            yield _linear(f"{name}.{matrix}", width, width, tokens, bias=False)
        yield _attention(f"{name}.attention", width, tokens)
        yield _linear(f"{name}.o_proj", width, width, tokens, bias=False)
        yield _norm(f"{name}.post_attention_layernorm", width, tokens, bias=False)
        yield _linear(f"{name}.gate_proj", width, inner, tokens, bias=False)
        yield _linear(f"{name}.up_proj", width, inner, tokens, bias=False)
        yield _linear(f"{name}.down_proj", inner, width, tokens, bias=False)
    yield _norm("norm", width, tokens, bias=False)
    yield _linear("lm_head", width, vocabulary, tokens, bias=False)


#: All built-in models by name.
ARCHITECTURES = {
    "resnet50": Architecture(parts=resnet50, batch=64, about="images of 224 x 224"),
    "bert-large": Architecture(parts=bert_large, batch=16, about="sequences of 512 tokens"),
    "gpt2": Architecture(parts=gpt2, batch=8, about="sequences of 1024 tokens"),
    "llama-7b": Architecture(parts=llama_7b, batch=1, about="sequences of 2048 tokens"),
}
