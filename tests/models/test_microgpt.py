"""microgpt against a scalar reference of its own, against published losses and weights, and its files and flags."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parray as pa
from models import MissingExtra, extra
from models import checkpoint
from models.microgpt import cli
from models.microgpt.data import alphabet_of, batch_of, encode, names_in, shipped_names
from models.microgpt.model import Params, loss
from models.microgpt.train import STATIC, init_params, mean_loss, sample, start, train
from parray import i64
from parray.sizes import B, N
from tests.models import scalar_gpt

CASES = Path(__file__).parents[1] / "data" / "microgpt"
DOCUMENTS = ["abca", "b", "", "ccab", "bacbac"]


def nested(params: Any) -> dict[str, Any]:
    return {name: x.tolist() for name, x in dict(params).items()}


def case(name: str) -> dict[str, np.ndarray]:
    with np.load(CASES / name) as z:
        return {key: z[key] for key in z}


def case_docs() -> list[str]:
    docs: list[str] = json.loads((CASES / "docs.json").read_text())["docs"]
    return docs


def tiny(layers: int = 1, width: int = 4, context: int = 5, seed: int = 1) -> Params:
    """Weights large enough that every part of the model matters."""
    return pa.tree.map(lambda x: 8 * x, init_params(4, layers, width, context, seed))


@pa.parallel(static=STATIC)
def loss_and_gradient(p: Params, tokens: i64[N], length: i64, heads: int) -> Any:
    return pa.value_and_grad(loss)(p, tokens, length, heads)


@pa.parallel(static=STATIC)
def batch_loss_and_gradient(p: Params, tokens: i64[B, N], lengths: i64[B], heads: int) -> Any:
    return pa.value_and_grad(mean_loss)(p, tokens, lengths, heads)


def assert_close(got: Any, want: dict[str, Any], tolerance: float) -> None:
    for name, x in dict(got).items():
        np.testing.assert_allclose(x, np.array(want[name]), rtol=tolerance, atol=tolerance, err_msg=name)


# --- the model, in the interpreter -----------------------------------------------------------------------------------

@pytest.mark.parametrize("layers, heads", [(1, 1), (1, 2), (2, 4)])
def test_loss_and_gradient_are_the_scalar_references(layers: int, heads: int) -> None:
    params = tiny(layers)
    tokens = encode(["abca"], "abc", 5, 3)[0]
    with pa.use_backend("interp"):
        value, grads = loss_and_gradient(params, tokens, np.int64(5), heads)
    want, want_grads = scalar_gpt.loss_and_gradient(nested(params), [tokens.tolist()], heads)
    assert value == pytest.approx(want, rel=1e-12)
    assert_close(grads, want_grads, 1e-11)


def test_a_batch_is_the_mean_over_its_documents_and_padding_does_not_count() -> None:
    params = tiny()
    encoded = encode(DOCUMENTS, "abc", 5, 3)
    tokens, lengths = batch_of(encoded, 0, len(encoded), 3)
    assert tokens.shape == (5, 6) and lengths.tolist() == [5, 2, 1, 5, 5]
    with pa.use_backend("interp"):
        value, grads = batch_loss_and_gradient(params, tokens, lengths, 2)
    want, want_grads = scalar_gpt.loss_and_gradient(nested(params), [e.tolist() for e in encoded], 2)
    assert value == pytest.approx(want, rel=1e-12)
    assert_close(grads, want_grads, 1e-11)


@pytest.mark.parametrize("batch, backend", [(1, "interp"), (2, "interp"), (2, "cpu")])
def test_training_is_the_scalar_references(batch: int, backend: str) -> None:
    params, steps = tiny(), 3
    seen = []
    got, losses = train(DOCUMENTS, params=params, steps=steps, batch=batch, dtype="f64", backend=backend, heads=2,
                        on_step=lambda state, value: seen.append((state.step, value)))
    ids = [e.tolist() for e in encode(DOCUMENTS, "abc", 5, 3)]
    batches = [[ids[(s * batch + j) % len(ids)] for j in range(batch)] for s in range(steps)]
    want, want_losses = scalar_gpt.adam_steps(nested(params), batches, 2)
    np.testing.assert_allclose(losses, want_losses, rtol=1e-12)
    assert_close(got, want, 1e-10)
    assert seen == list(zip(range(1, steps + 1), losses, strict=True))


# --- the published figures -------------------------------------------------------------------------------------------

def test_f64_training_follows_the_original_step_for_step() -> None:
    """The published losses and weights, and what is known of its thousand steps."""
    states: dict[int, Any] = {}
    _, losses = train(case_docs(), params=case("params_step0.npz"), steps=1000, dtype="f64",
                      on_step=lambda state, value: states.setdefault(state.step, state))
    published = json.loads((CASES / "losses.json").read_text())
    np.testing.assert_allclose(losses[:20], published, rtol=0, atol=1e-9)
    assert_close(states[10].params, case("params_step10.npz"), 1e-8)
    assert losses[-1] == pytest.approx(2.649694, abs=1e-6)
    assert np.mean(losses[-100:]) == pytest.approx(2.276123, abs=1e-6)


def test_f32_training_follows_the_original_closely() -> None:
    got, losses = train(case_docs(), params=case("params_step0.npz"), steps=1000, dtype="f32")
    np.testing.assert_allclose(losses[:20], json.loads((CASES / "losses.json").read_text()), rtol=0, atol=1e-3)
    assert np.mean(losses[-100:]) == pytest.approx(2.276123, abs=1e-3)
    assert all(x.dtype == np.float32 for x in dict(got).values())


# --- training's own rules --------------------------------------------------------------------------------------------

def test_training_leaves_the_given_weights_alone_and_documents_repeat() -> None:
    params = tiny()
    before = {name: x.copy() for name, x in dict(params).items()}
    _, texts = train(["abc", "ba"], params=params, steps=4, backend="interp", heads=2)
    _, tokens = train([[0, 1, 2], [1, 0], [0, 1, 2]], params=before, steps=3, backend="interp", heads=2)
    assert texts[:3] == tokens
    for name, x in dict(params).items():
        np.testing.assert_array_equal(x, before[name])


def test_going_on_from_a_state_is_the_same_as_never_stopping() -> None:
    states = []
    whole, losses = train(DOCUMENTS, params=tiny(), steps=4, backend="interp", heads=2,
                          on_step=lambda state, value: states.append(state))
    rest, tail = train(DOCUMENTS, state=states[1], steps=4, backend="interp", heads=2)
    assert tail == losses[2:]
    for name, x in dict(whole).items():
        np.testing.assert_array_equal(x, getattr(rest, name))


def test_what_cannot_be_trained_is_said() -> None:
    with pytest.raises(ValueError, match="no documents"):
        train([])
    with pytest.raises(ValueError, match="decay"):
        train(["ab"], steps=20, decay=10)
    with pytest.raises(ValueError, match="heads 3"):
        train(["ab"], heads=3)
    with pytest.raises(ValueError, match="weights are for 3 characters"):
        train(["abcde"], params=tiny())


def test_samples_are_documents_of_the_models_tokens() -> None:
    params = tiny(context=3)
    drawn = [sample(params, np.random.default_rng(seed), heads=2, backend="interp") for seed in range(6)]
    assert all(len(tokens) <= 3 and set(tokens) <= {0, 1, 2} for tokens in drawn)
    assert len({tuple(tokens) for tokens in drawn}) > 1
    assert drawn[2] == sample(params, np.random.default_rng(2), heads=2, backend="interp")


def test_a_cold_sample_is_the_likeliest_document() -> None:
    params = tiny(context=3)
    tokens = [3]
    while len(tokens) <= 3:
        row = scalar_gpt.logits_of(scalar_gpt.each(scalar_gpt.Scalar, nested(params)), tokens, 2)[-1]
        best = int(np.argmax([x.value for x in row]))
        if best == 3:
            break
        tokens.append(best)
    got = sample(params, np.random.default_rng(0), heads=2, temperature=1e-3, backend="interp")
    assert got == tokens[1:]


# --- documents -------------------------------------------------------------------------------------------------------

def test_documents_become_tokens_between_two_bos_cut_to_the_context() -> None:
    encoded = encode(["ab", "", [1, 0], [2, 0, 2], "bababa"], "ab", 4, 2)
    assert [e.tolist() for e in encoded] == [[2, 0, 1, 2], [2, 2], [2, 1, 0, 2], [2, 0, 2], [2, 1, 0, 1, 0]]
    with pytest.raises(ValueError, match="'c', which is not in the alphabet 'ab'"):
        encode(["abc"], "ab", 4, 2)
    with pytest.raises(ValueError, match="outside 0..2"):
        encode([[0, 3]], None, 4, 2)


def test_the_alphabet_is_what_the_documents_use_unless_the_weights_know_a_to_z() -> None:
    assert alphabet_of(["cab", "dab"]) == "abcd"
    assert alphabet_of([[0, 1]]) is None
    assert alphabet_of(["cab"], 26) == "abcdefghijklmnopqrstuvwxyz"
    with pytest.raises(ValueError, match="26 characters"):
        alphabet_of(["cäb"], 26)


def test_a_batch_pads_to_its_longest_document() -> None:
    tokens, lengths = batch_of(encode(["a", "ab", "b"], "ab", 8, 2), 1, 2, 2)
    assert tokens.tolist() == [[2, 1, 2], [2, 0, 2]] and lengths.tolist() == [2, 2]
    tokens, lengths = batch_of(encode(["a", "ab", "b"], "ab", 8, 2), 0, 2, 2)
    assert tokens.tolist() == [[2, 0, 2, 2], [2, 0, 1, 2]] and lengths.tolist() == [2, 3]


def test_names_are_lower_case_unique_and_shuffled_by_seed() -> None:
    pytest.importorskip("names")
    names = shipped_names(0)
    assert len(names) == len(set(names)) == 5163
    assert set("".join(names)) == set("abcdefghijklmnopqrstuvwxyz")
    assert names == shipped_names(0) != shipped_names(1)
    assert sorted(names) == sorted(shipped_names(1))


def test_a_names_file_has_one_document_a_line(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_text("Zoë\n\n  ann \nbo\n", encoding="utf-8")
    assert sorted(names_in(path, 0)) == ["Zoë", "ann", "bo"]
    path.write_text("\n")
    with pytest.raises(ValueError, match="holds no names"):
        names_in(path, 0)


def test_a_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingExtra, match=r"parray\[models\]"):
        extra("no_such_package_at_all")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="--names FILE"):
        shipped_names(0)


# --- checkpoints and the command line --------------------------------------------------------------------------------

def test_a_checkpoint_keeps_arrays_and_metadata(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    groups = {"params": {"wte": np.eye(2, dtype=np.float32)}, "m": {"wte": np.ones((2, 3))}}
    path = tmp_path / "new" / "a.safetensors"
    checkpoint.save(path, groups, {"step": 3, "rng": {"state": 2 ** 100}})
    got, metadata = checkpoint.load(path)
    assert metadata == {"step": 3, "rng": {"state": 2 ** 100}}
    for group, fields in groups.items():
        for name, x in fields.items():
            np.testing.assert_array_equal(got[group][name], x, strict=True)
    np.testing.assert_array_equal(checkpoint.load_weights(path)["wte"], np.eye(2))


def test_a_broken_checkpoint_is_an_error_that_names_it(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    path = tmp_path / "broken.safetensors"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="broken.safetensors is not a readable"):
        checkpoint.load(path)


def test_an_interrupted_write_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    checkpoint.write_atomically(path, b"old")

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt
    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


WRITER = """
import sys
import numpy as np
from models import checkpoint
step = 0
while True:
    checkpoint.save(sys.argv[1], {"params": {"w": np.full(1_000_000, step)}}, {"step": step})
    print(step, flush=True)
    step += 1
"""


def test_a_kill_in_the_middle_of_a_checkpoint_leaves_a_whole_one(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    path = tmp_path / "checkpoint.safetensors"
    for delay in (0.0, 0.003, 0.007, 0.011):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True,
                                  cwd=Path(__file__).parents[2])
        assert writer.stdout is not None
        while int(writer.stdout.readline()) < 1:
            pass
        time.sleep(delay)                               # somewhere in the one after it
        writer.kill()
        writer.communicate()
        groups, metadata = checkpoint.load(path)
        assert metadata["step"] >= 1 and (groups["params"]["w"] == metadata["step"]).all()


@pytest.fixture
def run_cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command line on three names with a tiny model; its exit status, output and errors."""
    monkeypatch.setattr(cli, "SAMPLES", 5)
    for package in ("tqdm", "safetensors", "matplotlib"):
        pytest.importorskip(package)
    (tmp_path / "names.txt").write_text("abba\ncab\nbacca\n")

    def run(out: str, *flags: str) -> tuple[int, str, str]:
        code = cli.main(["--out", str(tmp_path / out), "--backend", "interp", *flags])
        captured = capsys.readouterr()
        return code, captured.out, captured.err
    return run


def sizes(tmp_path: Path) -> list[str]:
    return ["--names", str(tmp_path / "names.txt"), "--width", "4", "--heads", "2", "--context", "4"]


def test_resuming_is_the_same_as_never_stopping(tmp_path: Path, run_cli: Any) -> None:
    code, whole, _ = run_cli("whole", "--steps", "4", "--batch", "2", *sizes(tmp_path))
    assert code == 0
    assert (tmp_path / "whole" / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert len([line for line in whole.splitlines() if line[:2].strip().isdigit() and line[2:4] == "  "]) == cli.SAMPLES
    assert run_cli("parts", "--steps", "2", "--batch", "2", *sizes(tmp_path))[0] == 0
    part = tmp_path / "parts" / "checkpoint.safetensors"
    code, rest, _ = run_cli("parts", "--resume", str(part), "--steps", "4")
    assert code == 0
    assert rest.splitlines()[-cli.SAMPLES:] == whole.splitlines()[-cli.SAMPLES:]
    got, metadata = checkpoint.load(part)
    want, want_metadata = checkpoint.load(tmp_path / "whole" / "checkpoint.safetensors")
    assert metadata == want_metadata and metadata["step"] == 4 and len(metadata["losses"]) == 4
    for group, fields in want.items():
        for name, x in fields.items():
            np.testing.assert_array_equal(got[group][name], x, strict=True)


def test_an_interrupt_keeps_a_checkpoint_of_a_whole_step(tmp_path: Path, run_cli: Any,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    advance = cli.Run.advance

    def interrupted(run: cli.Run, state: Any, value: float) -> None:
        if state.step == 3:
            run.losses.append(value)                # the worst moment: between the two lines of `advance`
            raise KeyboardInterrupt
        advance(run, state, value)
    monkeypatch.setattr(cli.Run, "advance", interrupted)
    code, _, err = run_cli("out", "--steps", "4", *sizes(tmp_path))
    assert code == 130 and "stopped at step 2" in err
    _, metadata = checkpoint.load(tmp_path / "out" / "checkpoint.safetensors")
    assert metadata["step"] == 2 == len(metadata["losses"])


def test_a_run_that_never_got_going_leaves_an_older_checkpoint_alone(tmp_path: Path, run_cli: Any) -> None:
    assert run_cli("out", "--steps", "1", *sizes(tmp_path))[0] == 0
    path = tmp_path / "out" / "checkpoint.safetensors"
    before = path.read_bytes()
    assert run_cli("out", "--steps", "1", *sizes(tmp_path), "--heads", "3")[0] == 1
    assert path.read_bytes() == before


def test_training_starts_from_given_weights(tmp_path: Path, run_cli: Any) -> None:
    init = tmp_path / "init.npz"
    np.savez(init, **tiny(layers=2, context=4))
    flags = ["--names", str(tmp_path / "names.txt"), "--heads", "2", "--init", str(init)]
    assert run_cli("out", "--steps", "0", "--dtype", "f64", *flags)[0] == 0
    weights = checkpoint.load_weights(tmp_path / "out" / "checkpoint.safetensors")
    for name, x in dict(tiny(layers=2, context=4)).items():
        np.testing.assert_array_equal(weights[name], x)
    code, _, err = run_cli("out", "--width", "8", *flags)
    assert code == 1 and "--width 8 contradicts" in err


def test_resuming_refuses_what_would_change_the_run(tmp_path: Path, run_cli: Any) -> None:
    assert run_cli("out", "--steps", "0", *sizes(tmp_path))[0] == 0
    path = tmp_path / "out" / "checkpoint.safetensors"
    code, _, err = run_cli("out", "--resume", str(path), "--lr", "0.5")
    assert code == 1 and "--lr 0.5 contradicts" in err
    (tmp_path / "names.txt").write_text("abba\ncab\n")
    code, _, err = run_cli("out", "--resume", str(path))
    assert code == 1 and "the documents are not those" in err
    weights = tmp_path / "weights.safetensors"
    checkpoint.save(weights, {"params": dict(start(tiny()).params)}, {})
    code, _, err = run_cli("out", "--resume", str(weights))
    assert code == 1 and "use --init" in err
