"""The migrations in order; names say what they make."""
