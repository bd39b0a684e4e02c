import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest

from oracle.report.html import context, environment, render
from tests.unit_report.scenes import (
    CANARY,
    CANARY_ID,
    EXAMPLE,
    IDS,
    SCENES,
    agree,
    mask,
    steps_frame,
    text,
)


class Elements(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def page(scene, reveal=False):
    return render(scene.verdict, scene.a, scene.b, reveal=reveal)


@pytest.mark.parametrize("name", SCENES)
def test_no_text_and_no_ordinary_id_is_on_the_page(name):
    shown = page(SCENES[name]())
    assert CANARY not in shown
    assert "canarypox" not in shown
    for id in {i for i in IDS if i > 200}:
        assert str(id) not in shown


def test_the_privacy_test_can_fail_because_a_reveal_shows_both():
    shown = page(text(), reveal=True)
    assert "rare" in shown
    assert str(CANARY_ID + 98) in shown


@pytest.mark.parametrize("name", SCENES)
def test_nothing_is_loaded_and_nothing_of_an_id_becomes_markup(name):
    elements = Elements(page(SCENES[name]())).found
    tags = [tag for tag, _ in elements]
    assert tags.count("script") == 2
    assert not {"img", "iframe", "object", "embed", "base", "form"} & set(tags)
    for tag, attributes in elements:
        assert "src" not in attributes
        assert "style" not in attributes
        assert not [key for key in attributes if key.startswith("on")]
        if "href" in attributes and tag != "link":
            assert attributes["href"][0] in "?#"
    assert [a["href"][:15] for tag, a in elements if tag == "link"] == ["data:image/svg+"]


def test_the_policy_names_our_style_and_script_by_hash_and_nothing_else():
    shown = page(mask())
    policy = next(
        a["content"]
        for tag, a in Elements(shown).found
        if a.get("http-equiv") == "Content-Security-Policy"
    )
    style = re.search(r"<style>(.*?)</style>", shown, re.S).group(1)
    script = re.search(r"<script>(.*?)</script>", shown, re.S).group(1)
    digests = [
        base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        for part in (style, script)
    ]
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digests[0]}'; "
        f"script-src 'sha256-{digests[1]}'; img-src data:; base-uri 'none'; form-action 'none'"
    )


HOSTILE = "</script><script>alert(1)</script>\"'><b>&amp;\u202e"


def test_every_string_of_a_verdict_and_a_header_is_escaped():
    scene = mask()
    first = replace(
        scene.verdict.first,
        **dict.fromkeys(("a", "b", "rule", "hint", "field", "example", "tensor"), HOSTILE),
    )
    legs = tuple(
        replace(leg, stack=HOSTILE, error=HOSTILE, versions={HOSTILE: HOSTILE})
        for leg in scene.verdict.legs
    )
    verdict = replace(
        scene.verdict,
        first=first,
        divergences=(first,),
        legs=legs,
        headline=HOSTILE,
        run=HOSTILE,
        reasons=(HOSTILE,),
        warnings=(HOSTILE,),
        config=dict(scene.verdict.config) | {"name": HOSTILE},
        floor={"file": "gone.json", "sha256": "0" * 64, "provenance": {HOSTILE: [HOSTILE]}},
        phases=tuple(replace(r, reason=HOSTILE) for r in scene.verdict.phases),
    )
    scene.a.header["facts"]["special_ids"] = {HOSTILE: 1}
    scene.a.header["provenance"]["device"] = HOSTILE
    shown = page(replace(scene, verdict=verdict))
    tags = [tag for tag, _ in Elements(shown).found]
    assert tags.count("script") == 2
    assert shown.count("</script>") == 2
    assert "alert(1)</script>" not in shown
    assert "\u202e" not in shown


def test_ten_thousand_steps_stay_under_one_megabyte(tmp_path):
    shown = page(agree(10_000, tmp_path))
    assert len(shown.encode()) < 700_000
    assert '"num":10000' in shown


def test_the_worst_ten_thousand_steps_stay_under_one_megabyte(tmp_path):
    """Nothing of it compresses: every bit of both legs is noise, and every token parts."""
    scene = mask(tmp_path)
    random = np.random.default_rng(0)
    names = ("loss", "grad_norm", "lr", "clip_factor", "param_norm")
    long = steps_frame(10_000)
    ids = [f"ex{k}" for k in range(12)]
    legs = []
    for place, old in enumerate((scene.a, scene.b)):
        steps = long.with_columns(**{n: random.random(10_000) for n in names})
        row = old.tokens.collect()
        tokens = pl.concat(
            row.with_columns(
                id=pl.lit(id),
                text=pl.lit("ab"[place] * 1000 + id),
                ids=pl.lit(pl.Series([[200 + place] * 1000]), dtype=pl.List(pl.Int32)),
                mask=pl.lit(pl.Series([[place] * 1000]), dtype=pl.List(pl.Int8)),
            )
            for id in ids
        )
        facts = {f"fact.{k}": "x" * 150 + str(place * (k % 9 == 0)) for k in range(900)}
        header = old.header | {"facts": old.header["facts"] | facts}
        legs.append(replace(old, steps=steps, tokens=tokens.lazy(), header=header))
    found = tuple(replace(scene.verdict.first, example=id, id=id) for id in ids)
    verdict = replace(scene.verdict, divergences=found, first=found[0])
    for reveal in (False, True):
        shown = render(verdict, *legs, reveal=reveal)
        assert len(shown.encode()) < 1_000_000
        assert shown.count('class="token') > 1_000
        num = int(re.search(r'"num":(\d+),"num_steps":10000', shown)[1])
        assert num < 10_000  # what gave way: steps between the extremes, and the page says so


def test_without_traces_the_page_says_why_and_what_to_do():
    scene = agree()
    legs = (replace(scene.verdict.legs[0], error="was killed by SIGKILL."), scene.verdict.legs[1])
    verdict = replace(scene.verdict, verdict="ERROR", legs=legs, reasons=("no trace.",))
    shown = render(verdict, None, None, reveal=False)
    assert "was killed by SIGKILL." in shown
    assert "What to do" in shown
    assert "There are no two whole traces to draw." in shown
    assert '"series":null' in shown


def test_a_rendering_has_tokens_and_no_curves():
    scene = mask()
    empty = (replace(t, steps=t.steps.clear()) for t in (scene.a, scene.b))
    shown = render(replace(scene.verdict, mode="render"), *empty, reveal=False)
    assert "Only rendered, nothing was trained" in shown
    assert 'class="tokens"' in shown


def test_the_page_is_the_same_bytes_for_the_same_verdict():
    assert page(mask()) == page(mask())


def test_an_example_that_one_leg_lacks_is_left_out():
    scene = mask()
    b = replace(scene.b, tokens=scene.b.tokens.filter(id="none"))
    shown = page(replace(scene, b=b))
    assert 'class="tokens"' not in shown
    assert EXAMPLE not in shown


def test_a_page_around_it_fills_the_block_and_leads_back_to_its_own_address():
    """What a service does: the same template, extended, with the address of the page."""
    scene = mask()
    around = '{% extends "verdict.html.jinja" %}{% block nav %}<nav>all runs</nav>{% endblock %}'
    template = environment().from_string(around)
    address = "/runs/83fe"
    shown = template.render(context(scene.verdict, scene.a, scene.b, reveal=False, base=address))
    assert "<nav>all runs</nav><header>" in shown
    links = [a["href"] for tag, a in Elements(shown).found if tag == "a"]
    assert {link[: len(address) + 1] for link in links if link != "#charts"} == {f"{address}?"}
    assert shown.count('type="application/json"') == 1
