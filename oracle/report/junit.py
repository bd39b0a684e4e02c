"""A verdict as JUnit XML, which every CI system can list: a case a phase, and one a leg.

Form: `testsuites > testsuite > testcase` with `failure`, `error` or `skipped`, as the schema of the
Jenkins xUnit plug-in has it. A phase that parted as a consequence is skipped: it is not a second
failure. What nobody compared is skipped with its reason, and in ERROR and INCONCLUSIVE the suite
has an error of its own, so that no CI system shows it green.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from oracle.contract import Divergence, PhaseResult, Verdict
from oracle.report.words import STATUS_WORDS, apart, percent, place, visible

# XML 1.0 has no way to write these, not even escaped.
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(verdict: Verdict) -> str:
    """Return the XML document of `verdict`; never text or ordinary ids of an example."""
    name = _text(f"oracle {verdict.config['name']} {verdict.purpose} {verdict.mode}".rstrip())
    cases = [_judgement(verdict), *_legs(verdict), *(_phase(verdict, r) for r in verdict.phases)]
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": str(sum(case.find("error") is not None for case in cases)),
        "skipped": str(sum(case.find("skipped") is not None for case in cases)),
    }
    # Jenkins' schema, which its plug-in enforces, knows no `skipped` at the root.
    total = {key: counts[key] for key in ("tests", "failures", "errors")}
    root = ElementTree.Element("testsuites", {"name": "oracle", **total})
    about = {"name": name, "timestamp": verdict.created[:19], "time": "0"}
    suite = ElementTree.SubElement(root, "testsuite", {**about, **counts})
    properties = ElementTree.SubElement(suite, "properties")
    for key, value in _facts(verdict).items():
        ElementTree.SubElement(properties, "property", name=key, value=_text(value))
    for case in cases:
        case.set("classname", name)
        suite.append(case)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _facts(verdict: Verdict) -> dict[str, str]:
    return {
        "verdict": verdict.verdict,
        "headline": verdict.headline,
        "run": verdict.run or "",
        "config_sha256": str(verdict.config["sha256"]),
        "tolerances": verdict.tolerances["file"],
    } | {f"code_sha256.{leg.name}": leg.code_sha256 or "" for leg in verdict.legs}


def _judgement(verdict: Verdict) -> ElementTree.Element:
    """Return the case that is red whenever the run was not judged."""
    case = _case("the run was judged")
    if verdict.verdict in ("ERROR", "INCONCLUSIVE"):
        lines = [*verdict.reasons, *(leg.error for leg in verdict.legs if leg.error)]
        _add(case, "error", verdict.verdict, verdict.headline, "\n".join(lines))
    return case


def _legs(verdict: Verdict) -> list[ElementTree.Element]:
    cases = []
    for leg in verdict.legs:
        case = _case(f"leg {leg.name} ended well")
        if leg.error:
            _add(case, "error", "LegError", leg.error, leg.error)
        cases.append(case)
    return cases


def _phase(verdict: Verdict, result: PhaseResult) -> ElementTree.Element:
    case = _case(f"phase {result.phase}")
    found = [item for item in verdict.divergences if item.phase == result.phase]
    if result.status == "diverged" and found:
        _add(case, "failure", found[0].clause, _headline(found[0]), "\n\n".join(map(_body, found)))
    elif result.status == "diverged":
        _add(case, "failure", result.phase, "diverged", "see the JSON verdict")
    elif result.status != "agree":
        because = next((c.because for c in verdict.consequences if c.phase == result.phase), None)
        reason = result.reason or (f"a consequence of {because}" if because else "")
        words = STATUS_WORDS[result.status] + (f": {reason}" if reason else "")
        ElementTree.SubElement(case, "skipped", message=_text(words))
    else:
        share = percent(result.num_agreeing, result.num_compared)
        output = ElementTree.SubElement(case, "system-out")
        output.text = _text(f"{share} of {result.num_compared} {result.unit} agree")
    return case


def _headline(item: Divergence) -> str:
    return f"{item.phase} parts at {place(item)}"


def _body(item: Divergence) -> str:
    lines = [_headline(item), f"a: {item.a}", f"b: {item.b}", f"rule: {item.rule}"]
    lines += [f"apart: {apart(item)}"] if apart(item) else []
    lines += [f"hint: {item.hint}"] if item.hint else []
    lines += [f"{item.num_like_it} more like it"] if item.num_like_it else []
    return "\n".join(map(visible, [*lines, f"clause: {item.clause}"]))


def _case(name: str) -> ElementTree.Element:
    return ElementTree.Element("testcase", name=_text(name), time="0")


def _add(case: ElementTree.Element, tag: str, kind: str, message: str, body: str) -> None:
    entry = ElementTree.SubElement(case, tag, type=_text(kind), message=_text(visible(message)))
    entry.text = _text(body)


def _text(value: str) -> str:
    return FORBIDDEN.sub("\ufffd", value)
