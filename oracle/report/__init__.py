"""Reports: one verdict, one renderer a module (`text`, `json`, `html`, `show`). They judge nothing.

Design section 8 holds in all of them: without `reveal` no text and no ordinary token id is shown.
"""
