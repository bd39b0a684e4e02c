import json
import math
from dataclasses import replace

import pytest

from oracle.errors import OracleError
from oracle.report.json import dumps, encode, loads
from tests.unit_report.scenes import SCENES, agree, mask


@pytest.mark.parametrize("name", SCENES)
def test_a_verdict_comes_back_as_it_was(name):
    verdict = SCENES[name]().verdict
    again = loads(dumps(verdict))
    assert dumps(again) == dumps(verdict)
    assert again.exit_code == verdict.exit_code
    assert again.legs == verdict.legs
    assert again.phases == verdict.phases


def test_floats_keep_every_bit_and_what_is_not_finite_is_a_string():
    verdict = mask().verdict
    values = {"absolute": 0.1 + 0.2, "relative": math.inf, "ulps": math.nan, "allowed": 5e-324}
    first = replace(verdict.divergences[0], **values)
    text = dumps(replace(verdict, first=first))
    document = json.loads(text, parse_constant=pytest.fail)
    assert "0.30000000000000004" in text
    assert document["first"]["relative"] == "Infinity"
    assert document["first"]["ulps"] == "NaN"
    again = loads(text).first
    assert (again.absolute, again.relative, again.allowed) == (
        0.30000000000000004,
        math.inf,
        5e-324,
    )
    assert math.isnan(again.ulps)
    assert encode(-math.inf) == "-Infinity"


def test_a_lone_surrogate_in_an_id_can_be_written():
    verdict = mask().verdict
    odd = replace(verdict, first=replace(verdict.first, example="a\ud800b"))
    assert dumps(odd).encode("utf-8")
    assert loads(dumps(odd)).first.example == "a\ud800b"


def test_a_document_off_the_schema_is_refused_with_its_field():
    document = json.loads(dumps(agree().verdict))
    document["phases"][2]["status"] = "fine"
    with pytest.raises(OracleError, match=r"phases\.2\.status"):
        loads(json.dumps(document))


def test_an_edited_exit_code_is_refused():
    document = json.loads(dumps(mask().verdict)) | {"exit_code": 0}
    with pytest.raises(OracleError, match="exit code 1, the document says 0"):
        loads(json.dumps(document))


def test_a_cut_document_is_refused_in_one_sentence():
    with pytest.raises(OracleError, match="not JSON"):
        loads(dumps(agree().verdict)[:500])


def test_a_verdict_off_the_schema_is_not_written():
    with pytest.raises(OracleError, match="summary"):
        dumps(replace(agree().verdict, summary={"num_steps": 3}))
