import io
from dataclasses import replace

import pytest
from rich.console import Console

from oracle.errors import OracleError
from oracle.report import show
from oracle.report.json import dumps
from tests.unit_report.scenes import CANARY, CANARY_ID, EXAMPLE, SCENES, agree, mask, text


def shown(scene, tmp_path, monkeypatch, *, step=None, phase=None, example=None, reveal=False):
    (tmp_path / "verdict.json").write_text(dumps(scene.verdict))
    traces = {"torch": scene.a, "jax": scene.b}
    monkeypatch.setattr(show, "read_trace", lambda path: traces[path.name])
    stream = io.StringIO()
    console = Console(file=stream, width=100, color_system=None)
    code = show.print_show(
        tmp_path, step=step, phase=phase, example=example, reveal=reveal, console=console
    )
    assert code == 0
    return stream.getvalue()


def test_a_run_is_its_verdict_and_where_everything_lies(tmp_path, monkeypatch):
    (tmp_path / "report.html").touch()
    output = shown(mask(), tmp_path, monkeypatch)
    assert output.startswith("DIVERGED  mask  step 12")
    assert "torch_stack · code 37bf51bfba46 · torch 2.13.0" in output
    assert "rules   configs/tolerances/float64.toml · floor none measured" in output
    assert f"page    {tmp_path / 'report.html'}" in output


def test_a_step_has_the_exact_numbers_of_both_legs(tmp_path, monkeypatch):
    scene = mask()
    output = shown(scene, tmp_path, monkeypatch, step=12)
    line = next(line for line in output.splitlines() if line.startswith("  loss "))
    _, a, b, absolute, relative, _ulps, clause = line.split()
    assert (float(a), float(b)) == (scene.a.steps["loss"][12], scene.b.steps["loss"][12])
    assert (absolute, relative, clause) == ("0.0244", "0.0099", "S-14")
    assert "  batch_sha256  equal" in output


def test_a_phase_shows_its_divergences_and_the_aligned_tokens(tmp_path, monkeypatch):
    output = shown(mask(), tmp_path, monkeypatch, step=12, phase="mask")
    assert "mask  diverged · 1035 of 1038 examples agree (99.7 %)" in output
    cells = [line.split() for line in output.splitlines() if line.startswith("  ≠")]
    assert cells[0] == ["≠", "37", "target", "•", "37", "ignored", "•"]
    assert len(cells) == 3
    assert "… 31 equal" in output


@pytest.mark.parametrize("name", ["text", "ids", "mask"])
def test_tokens_are_hidden_until_revealed(tmp_path, monkeypatch, name):
    scene = SCENES[name]()
    hidden = shown(scene, tmp_path, monkeypatch, phase=name)
    assert CANARY not in hidden
    assert str(CANARY_ID)[:4] not in hidden
    assert "--reveal-text" in hidden
    revealed = shown(scene, tmp_path, monkeypatch, phase=name, reveal=True)
    assert str(CANARY_ID)[:4] in revealed
    assert ("⏎→" in revealed) == (name == "text")


def test_an_example_can_be_asked_for_by_its_id(tmp_path, monkeypatch):
    output = shown(text(), tmp_path, monkeypatch, example=EXAMPLE)
    assert output.startswith(f"example {EXAMPLE} (train) · 56 tokens against 56, 1 differ\n")
    assert "text + characters 95–95 against 95–97" in output


def test_what_is_not_there_is_refused_in_one_sentence(tmp_path, monkeypatch):
    scene = agree()
    with pytest.raises(OracleError, match="no step 900; its steps end at 119"):
        shown(scene, tmp_path, monkeypatch, step=900)
    with pytest.raises(OracleError, match="'masks' is no phase; the phases are echo, order"):
        shown(scene, tmp_path, monkeypatch, phase="masks")
    with pytest.raises(OracleError, match="neither leg has an example 'ex9999'"):
        shown(scene, tmp_path, monkeypatch, example="ex9999")
    (tmp_path / "verdict.json").unlink()
    with pytest.raises(OracleError, match="was not judged yet"):
        show.read_verdict(tmp_path)


def test_a_step_that_one_leg_lacks_is_shown_as_absent(tmp_path, monkeypatch):
    scene = agree()
    short = replace(scene, b=replace(scene.b, steps=scene.b.steps.head(100)))
    output = shown(short, tmp_path, monkeypatch, step=110)
    assert "absent" in output
