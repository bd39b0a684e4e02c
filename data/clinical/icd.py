"""Questions and answers about ICD-10-CM, from the package `simple-icd-10-cm`.

The entity of a conversation is the three-character category (`icd:A00`), so a code, its parents and
its children below the chapter's blocks are all on one side of the split. Chapters and blocks are
the context of an answer and are never asked about.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import simple_icd_10_cm as icd

from data.clinical.conversation import Conversation, converse, pick, share

Turns = list[tuple[str, str]]

SECOND_QUESTION_SHARE = 0.5
"""Share of codes about which a second, structural question is asked."""

MEANING = (
    "What does ICD-10-CM code {code} mean?",
    "What is {code}?",
    "Please give me the description of the diagnosis code {code}.",
    "I found {code} on a claim. What does it stand for?",
    "{code}",
)
CODE_FOR = (
    "Which ICD-10-CM code stands for this: {text}?",
    'What is the code for "{text}"?',
    "Code this diagnosis.\n\n{text}",
    "I need the ICD-10-CM code. Diagnosis:\n- {text}\n\nThank you!",
)
CODE_ONLY = "Answer with the code alone."


@dataclass(frozen=True, kw_only=True)
class Code:
    """A category or subcategory with its place in the tree; codes carry their dots."""

    code: str
    text: str
    children: tuple[str, ...]
    ancestors: tuple[str, ...]
    """From the parent up to the chapter."""

    @property
    def named(self) -> str:
        """The code and its description, as answers quote it."""
        return f"{self.code} ({self.text})"


def load(code: str) -> Code:
    """Read one code from the classification.

    A block of one category bears its name (QA0); such a name is kept once, as the category.
    """
    above = dict.fromkeys(name for name in icd.get_ancestors(code) if name != code)
    return Code(
        code=code,
        text=icd.get_description(code),
        children=tuple(icd.get_children(code)),
        ancestors=tuple(above),
    )


def listed(codes: tuple[str, ...]) -> str:
    """The codes with their descriptions, one a line."""
    return "\n".join(f"- {code}: {icd.get_description(code)}" for code in codes)


def meaning(code: Code) -> Turns:
    """The description of a code."""
    question = pick(MEANING, "meaning", code.code).format(code=code.code)
    answers = (
        f"{code.text}.",
        f"{code.code} is the ICD-10-CM code for: {code.text}.",
        f"{code.code}: {code.text}",
    )
    return [(question, pick(answers, "meaning answer", code.code))]


def code_for(code: Code) -> Turns:
    """The code of a description."""
    question = pick(CODE_FOR, "code for", code.code).format(text=code.text)
    answers = (code.code, f"The ICD-10-CM code is {code.code}.", f"{code.code}: {code.text}.")
    return [(question, pick(answers, "code for answer", code.code))]


def billable(code: Code) -> Turns:
    """Whether a claim may carry the code: whether it is a leaf."""
    question = pick(
        ("Is {code} a billable code?", "Can I put {code} on a claim?", "{code}: billable?"),
        "billable",
        code.code,
    ).format(code=code.code)
    if not code.children:
        answers = ("Yes.", f"Yes. {code.named} has no subdivisions, so it is a billable code.")
        return [(question, pick(answers, "billable answer", code.code))]
    number = len(code.children)
    return [
        (
            question,
            f"No. {code.named} is divided further into {number} code{'s' * (number > 1)}; "
            "use the most specific one that the record supports.",
        )
    ]


def place(code: Code) -> Turns:
    """Where the code sits, from the chapter down."""
    question = pick(
        ("Where does {code} sit in ICD-10-CM?", "Which chapter and block contain {code}?"),
        "place",
        code.code,
    ).format(code=code.code)
    path = [
        f"{'Chapter ' * icd.is_chapter(above)}{above}: {icd.get_description(above)}"
        for above in reversed(code.ancestors)
    ]
    indented = [f"{'  ' * depth}{line}" for depth, line in enumerate([*path, code.named])]
    return [(question, "\n".join(indented))]


def parent(code: Code) -> Turns:
    """The code one level up."""
    above = load(code.ancestors[0])
    question = f"What is the parent of {code.code}?"
    return [(question, f"The parent of {code.named} is {above.named}.")]


def subdivisions(code: Code) -> Turns:
    """The codes one level down."""
    question = pick(
        ("List the subdivisions of {code}.", "Which codes are directly under {code}?"),
        "subdivisions",
        code.code,
    ).format(code=code.code)
    return [(question, f"{code.named} is divided into:\n{listed(code.children)}")]


def seventh_character(code: Code) -> Turns:
    """The table of the seventh character, own or inherited."""
    meanings = icd.get_seven_chr_def(code.code, True)
    rows = "\n".join(f"{character} = {text}" for character, text in meanings.items())
    return [(f"What can the seventh character of {code.code} be?", f"{code.named}:\n{rows}")]


def notes(code: Code) -> Turns:
    """One turn for each kind of note that the classification gives for the code."""
    found = (
        ("What does {code} include?", icd.get_includes(code.code)),
        ("Which terms are listed under {code}?", icd.get_inclusion_term(code.code)),
        ("What is excluded from {code} (Excludes1)?", icd.get_excludes1(code.code)),
        ("What is not part of {code}, but may be coded with it?", icd.get_excludes2(code.code)),
    )
    turns: Turns = [
        (question.format(code=code.code), "\n".join(f"- {item}" for item in items))
        for question, items in found
        if items
    ]
    advice = icd.get_use_additional_code(code.code)
    if advice:
        answer = f"For {code.named}, use an additional code:\n{advice}"
        turns.append((f"Is a second code needed with {code.code}?", answer))
    first = icd.get_code_first(code.code)
    if first:
        turns.append((f"Which code comes before {code.code}?", f"Code first: {first}"))
    return turns


def drill_down(code: Code) -> Turns:
    """From the category to the code, a turn for each level below the category."""
    levels = [a for a in reversed(code.ancestors) if icd.is_category_or_subcategory(a)]
    turns: Turns = []
    for above, below in zip(levels, [*levels[1:], code.code], strict=True):
        opening = f"I start from {above}." if not turns else "And below that?"
        question = f"{opening} Which code covers: {icd.get_description(below)}?"
        turns.append((question, f"{below}, one of {len(icd.get_children(above))} under {above}."))
    last = "Yes." if not code.children else "No, it has subdivisions."
    return [*turns, ("Is that one billable?", last)]


def structural(code: Code) -> list[Callable[[Code], Turns]]:
    """The structural questions that make sense for this code."""
    kinds: list[Callable[[Code], Turns]] = [billable, place]
    if "." in code.code:
        kinds += [parent, drill_down]
    if code.children:
        kinds += [subdivisions, subdivisions, subdivisions]
    if 5 <= len(code.code) < 8 and icd.get_seven_chr_def(code.code, True):
        kinds.append(seventh_character)
    return kinds


def conversations() -> Iterator[Conversation]:
    """All conversations about all categories and subcategories, in the classification's order."""
    codes = dict.fromkeys(c for c in icd.get_all_codes(True) if icd.is_category_or_subcategory(c))
    for name in codes:
        code, entity = load(name), f"icd:{name[:3]}"
        first = pick((meaning, code_for), "first", name)
        system = CODE_ONLY if first is code_for and share("code only", name) < 0.1 else None
        turns = [(first(code)[0][0], name)] if system else first(code)
        yield converse(entity, f"{name} first", turns, system)
        if share("second", name) < SECOND_QUESTION_SHARE:
            second = pick(structural(code), "second", name)
            yield converse(entity, f"{name} second", second(code))
        if noted := notes(code):
            yield converse(entity, f"{name} notes", noted)
