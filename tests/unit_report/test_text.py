import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from oracle.contract import Consequence
from oracle.report.text import print_verdict, status_line
from oracle.report.words import aftermath, joined, percent, short, visible
from tests.unit_report.scenes import CANARY, CANARY_ID, SCENES, agree, loss, mask


def printed(verdict, width=100):
    stream = io.StringIO()
    print_verdict(verdict, Console(file=stream, width=width, color_system=None))
    return stream.getvalue()


def test_a_divergence_has_the_shape_that_a_person_should_meet():
    scene = mask()
    first = replace(scene.verdict.first, example="ex0041", hint=None, num_like_it=0)
    names = ("loss", "grad_norm", "update", "params")
    after = tuple(Consequence(phase=name, first_step=12, num=108, because="mask") for name in names)
    verdict = replace(
        scene.verdict, first=first, divergences=(first,), consequences=after, warnings=()
    )
    assert printed(verdict) == (
        "DIVERGED  mask  step 12 · example ex0041 · token 37\n"
        "  torch   target       jax   ignored\n"
        "  rule    phases.toml: mask is exact        clause S-06\n"
        "  then    loss, grad_norm, update and params part from step 12 on (consequences)\n"
        "  next    oracle show 83fe --step 12 --phase mask\n"
    )


def test_a_numeric_divergence_gives_both_values_and_every_distance():
    scene = loss()
    text = printed(scene.verdict, width=70)
    first = scene.verdict.first
    assert f"  torch   {first.a}" in text
    assert f"\n  jax     {first.b}\n" in text
    assert "relative 0.0099, allowed 1e-13 · absolute 0.0244 · 2.4e13 ulps" in text


def test_long_values_take_a_line_each():
    scene = mask()
    first = replace(scene.verdict.first, a="a" * 60, b="b" * 60)
    text = printed(replace(scene.verdict, first=first, divergences=(first,)))
    assert f"\n  torch   {'a' * 60}\n  jax     {'b' * 60}\n" in text


def test_further_independent_divergences_are_counted():
    assert "  also    2 in mask and 1 in lr, not explained by the first\n" in printed(
        mask().verdict
    )


def test_agreement_is_a_table_of_phases_and_one_status_line():
    lines = printed(agree().verdict).splitlines()
    assert lines[0].split() == ["phase", "compared", "agreement", "worst", "relative", "where"]
    assert lines[1].split() == ["echo", "78", "facts", "100", "%"]
    assert "  loss       120 steps      100 %      4.4e-15         step 97" in lines
    assert lines[-2].split() == ["not", "compared", "forward"]
    assert lines[-1] == (
        "AGREE  clinical-demo · float64 · 120 steps, 1,038 examples · loss within 4.4e-15 · cross"
    )
    assert len(lines) <= 24


def test_a_self_agreement_says_that_it_passes_no_gate():
    assert status_line(replace(agree().verdict, purpose="self")).endswith("self (passes no gate)")


@pytest.mark.parametrize("name", ["ERROR", "INCONCLUSIVE"])
def test_what_is_not_judged_says_why_and_what_to_do(name):
    scene = agree()
    legs = (replace(scene.verdict.legs[0], error="was killed by SIGKILL."), scene.verdict.legs[1])
    reasons = tuple(f"reason {k}" for k in range(9))
    text = printed(replace(scene.verdict, verdict=name, legs=legs, reasons=reasons))
    assert text.startswith(name)
    assert "  torch   was killed by SIGKILL.\n" in text
    assert "  why     reason 0\n" in text
    assert "  why     5 more in the JSON verdict\n" in text
    assert f"  do      {'mend what' if name == 'ERROR' else 'oracle show'}" in text
    assert len(text.splitlines()) <= 24


def test_a_floor_is_advised_where_a_reason_asks_for_one():
    reasons = ("no noise floor of this run; measure it with `oracle calibrate CONFIG`",)
    text = printed(replace(agree().verdict, verdict="INCONCLUSIVE", reasons=reasons))
    assert "  do      oracle calibrate CONFIG" in text


def test_control_characters_and_markup_of_an_id_are_shown_and_not_obeyed():
    scene = mask()
    first = replace(scene.verdict.first, example="\x1b[31mred[/bold]\u202e")
    text = printed(replace(scene.verdict, first=first, divergences=(first,)))
    assert "\\x1b[31mred[/bold]\\u202e" in text
    assert "\x1b" not in text


def on_terminal(verdict, width, **environment):
    stream = io.StringIO()
    where = {"TERM": "xterm-256color"} | environment
    print_verdict(verdict, Console(file=stream, width=width, force_terminal=True, _environ=where))
    return stream.getvalue()


def compared(verdict):
    return [result.phase for result in verdict.phases if result.status != "not_compared"]


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("width", [80, 60, 40])
@pytest.mark.parametrize("scene", [mask, loss, agree])
def test_a_narrow_terminal_breaks_lines_between_words_under_their_value(scene, width):
    verdict = scene().verdict
    if verdict.first is not None:
        verdict = replace(verdict, first=replace(verdict.first, example="ex0041"))
    lines = plain(on_terminal(verdict, width)).splitlines()
    # Neither a word that is longer than its room is cut nor a command: both can still be copied.
    long = [line for line in lines if len(line) > width and not line.startswith("  next ")]
    assert [line for line in long if " " in line[10:].strip()] == []
    if verdict.verdict == "AGREE":  # a table gives up its last columns instead
        assert [line.split()[0] for line in lines[1:17]] == compared(verdict)
        assert all("100 %" in line for line in lines[1:17])
        return
    inner = [line for line in lines if line.startswith("   ")]
    assert all(line.startswith(" " * 10) for line in inner)
    assert " ".join(lines).split() == printed(verdict).split()


def test_what_is_piped_has_one_line_an_item_and_no_escape(monkeypatch):
    text = printed(mask().verdict, width=40)
    assert "\x1b" not in text
    assert len(text.splitlines()) == 8
    assert "parts from step 12 on" in text or "part from step 12 on (consequences)\n" in text


def test_no_color_is_respected_and_a_terminal_has_color():
    coloured = re.compile(r"\x1b\[[0-9;]*(3[0-7]|9[0-7]|38;)")
    assert coloured.search(on_terminal(mask().verdict, 80))
    assert not coloured.search(on_terminal(mask().verdict, 80, NO_COLOR="1"))
    assert "\x1b" not in on_terminal(mask().verdict, 80, TERM="dumb", NO_COLOR="1")


@pytest.mark.parametrize("name", SCENES)
def test_no_text_and_no_ordinary_id_is_printed(name):
    text = printed(SCENES[name]().verdict)
    assert CANARY not in text
    assert str(CANARY_ID)[:4] not in text


@pytest.mark.parametrize(
    ("agreeing", "compared", "shown"),
    [
        (120, 120, "100 %"),
        (0, 120, "0 %"),
        (119_999, 120_000, "99.999 %"),
        (9_999_999, 10_000_000, "> 99.999 %"),
        (1, 10_000_000, "< 0.001 %"),
        (1, 2, "50 %"),
        (0, 0, "–"),
    ],
)
def test_a_share_is_never_rounded_to_all_or_nothing(agreeing, compared, shown):
    assert percent(agreeing, compared) == shown


def test_words():
    assert joined([]) == ""
    assert joined(["a"]) == "a"
    assert joined(["a", "b", "c"]) == "a, b and c"
    shown = [short(x) for x in (None, 0.0, 4.2e-6, 1e-12, 0.0244, 123456.0, float("inf"))]
    assert shown == ["–", "0", "4.2e-6", "1e-12", "0.0244", "123456", "inf"]
    assert visible("é\n\ud800") == "é\\n\\ud800"
    after = [
        Consequence(phase="loss", first_step=12, num=1, because="mask"),
        Consequence(phase="eval", first_step=39, num=1, because="mask"),
    ]
    assert aftermath(after) == "loss parts from step 12 on, eval from step 39 on (consequences)"
