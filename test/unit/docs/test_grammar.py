"""The grammar has a rule for every op and for every word that a rule uses; the Python page has a text for everything that it names."""

import re

from ktir import registry
from ktir.tools.pages.grammar import OF_MLIR, grammar_page, name_of
from ktir.tools.pages.python_api import MODULES, api_page, environment_page, exported


def test_every_word_of_the_grammar_has_a_rule() -> None:
    text = re.sub(r"^```.*$|^#.*$", "", "\n".join(grammar_page()[9:]), flags=re.M)
    rules = dict(re.findall(r"^([\w-]+) *=(.*?) ;$", text, re.M | re.S))
    assert {name_of(op.OPERATION_NAME) for d in registry.dialect_names() for op in registry.dialect_class(d).operations} <= set(rules)
    used = {word for right in rules.values() for word in re.findall(r"[a-zA-Z][\w-]*", re.sub(r'"[^"]*"', "", right))}
    assert used <= {*rules, *OF_MLIR}
    assert set(rules) - used == {"module"}, "where it begins"


def test_the_python_page_has_a_text_for_everything() -> None:
    text = "\n".join(api_page())
    for module, names in MODULES.items():
        for name in names or exported(module):
            section = text.partition(f"### `{module}.{name}`\n")[2].partition("\n### ")[0]
            assert re.search(r"^\w.*\.", section.rpartition("```")[2] or section, re.M), f"{module}.{name}"
    assert "KTIR_FALLBACK" in "\n".join(environment_page())
