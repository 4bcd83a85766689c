from __future__ import annotations

from pathlib import Path

import pytest

from ringbench.ddp.workloads import Layer, Workload, read_workload, workload_named

TOTALS = {
    "resnet50": (25_557_032, 161),
    "bert-large": (335_141_888, 391),
    "gpt2": (124_439_808, 148),
    "llama-7b": (6_738_415_616, 291),
}


@pytest.mark.parametrize("name", sorted(TOTALS))
def test_a_built_in_has_the_parameters_of_its_model(name: str) -> None:
    found = workload_named(name)
    tensors = [shape for layer in found.layers for shape in layer.shapes]
    assert (found.parameters, len(tensors)) == TOTALS[name]
    assert len({layer.name for layer in found.layers}) == len(found.layers)
    assert found.backward_s == pytest.approx(2 * found.forward_s)


def test_operations_are_those_that_are_published() -> None:
    # 4.1 billion multiplications and additions for an image, and 6 operations for a parameter and token of training.
    image = workload_named("resnet50", batch=1)
    assert image.forward_s * 50e12 == pytest.approx(2 * 4.1e9, rel=0.01)
    sequence = workload_named("llama-7b", batch=1)
    matrices = sequence.parameters - 32000 * 4096
    scores = 32 * 4 * 2048**2 * 4096
    assert sequence.compute_s * 50e12 == pytest.approx(3 * (2 * matrices * 2048 + scores), rel=1e-3)


def test_shapes_are_those_of_the_layers() -> None:
    layers = {layer.name: layer for layer in workload_named("resnet50").layers}
    assert layers["conv1"].shapes == ((64, 3, 7, 7),)
    assert layers["layer4.0.downsample.0"].shapes == ((2048, 1024, 1, 1),)
    assert layers["fc"].shapes == ((1000, 2048), (1000,))
    gpt2 = {layer.name: layer for layer in workload_named("gpt2").layers}
    assert gpt2["h.3.attn.c_attn"].shapes == ((768, 2304), (2304,))
    assert gpt2["lm_head"].shapes == ()  # its matrix is the table of words
    assert gpt2["lm_head"].backward_s > gpt2["h.0.mlp.c_fc"].backward_s


def test_a_backward_time_is_shared_out_by_what_is_computed() -> None:
    found = workload_named("gpt2", backward_s=0.1, batch=3)
    assert found.backward_s == pytest.approx(0.1)
    assert found.forward_s == pytest.approx(0.05)
    assert found.batch == 3
    fc, proj = (layer for layer in found.layers if layer.name in ("h.0.mlp.c_fc", "h.0.attn.c_proj"))
    assert max(fc.backward_s, proj.backward_s) == pytest.approx(4 * min(fc.backward_s, proj.backward_s))


SIXTEEN = """
name = "sixteen"
batch = 32
[[layer]]
name = "block"
parameters = 131072
backward = "20ms"
forward = "10ms"
repeat = 16
[[layer]]
shape = [[10, 4], [10]]
"""


def test_layers_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text(SIXTEEN, encoding="utf-8")
    found = workload_named(str(tmp_path / "w.toml"))
    assert (found.name, found.batch, len(found.layers)) == ("sixteen", 32, 17)
    assert found.layers[15] == Layer(name="block.15", shapes=((131072,),), forward_s=0.01, backward_s=0.02)
    assert found.layers[16] == Layer(name="layer2", shapes=((10, 4), (10,)))
    assert found.backward_s == pytest.approx(0.32)
    assert workload_named(str(tmp_path / "w.toml"), backward_s=0.16).layers[0].forward_s == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("layer = 3", "no [[layer]]"),
        ("", "no [[layer]]"),
        ("[[layer]]\nparameters = 4\ncolour = 3", "layer 1: unknown key 'colour'"),
        ("[[layer]]\nparameters = 4\n[[layer]]\nname = 'x'", "layer 2: give either parameters or shape"),
        ("[[layer]]\nparameters = 4\nshape = [4]", "layer 1: give either parameters or shape"),
        ("[[layer]]\nparameters = -4", "parameters = -4"),
        ("[[layer]]\nparameters = 4.5", "parameters = 4.5"),
        ("[[layer]]\nparameters = true", "parameters = True"),
        ("[[layer]]\nshape = []", "shape = []"),
        ("[[layer]]\nshape = [3, 0]", "shape = [3, 0]"),
        ("[[layer]]\nparameters = 4\nbackward = 20", "backward = 20"),
        ("[[layer]]\nparameters = 4\nbackward = '20'", "backward = '20'"),
        ("[[layer]]\nparameters = 4\nbackward = '-1ms'", "backward = '-1ms'"),
        ("[[layer]]\nparameters = 4\nbackward = '90000s'", "backward 90000.0 s"),
        ("[[layer]]\nparameters = 4\nrepeat = 0", "repeat = 0"),
        ("[[layer]]\nparameters = 4\nrepeat = 100001", "repeat = 100001"),
        ("[[layer]]\nparameters = 4\nname = ''", "name = ''"),
        ("[[layer]]\nparameters = 0", "no parameters"),
        ("[[layer]]\nshape = [2000000000, 2000000000]", "parameters 4000000000000000000"),
        ("batch = 0\n[[layer]]\nparameters = 4", "batch 0"),
        ("batch = '4'\n[[layer]]\nparameters = 4", "batch = '4'"),
        ("name = 7\n[[layer]]\nparameters = 4", "name = 7"),
        ("[[layer", "not TOML"),
        ("engine = ['thread']\n[[layer]]\nparameters = 4", "unknown key 'engine'"),
    ],
)
def test_a_bad_file_is_refused_in_one_line_that_names_file_and_value(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "w.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"w\.toml: ") as found:
        read_workload(file)
    assert named in str(found.value)
    assert "\n" not in str(found.value)


def test_unknown_names_and_times_that_cannot_be_scaled_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown workload 'gpt9'; known: resnet50, bert-large"):
        workload_named("gpt9")
    with pytest.raises(ValueError, match="no backward times that could be scaled"):
        Workload(name="w", layers=(Layer(name="a", shapes=((2,),)),)).scaled(1.0)
    with pytest.raises(FileNotFoundError):
        workload_named(str(tmp_path / "none.toml"))
