"""The cases of the golden vectors, a module a clause or group of clauses."""
