"""Clinical question-answer conversations: see README.md."""
