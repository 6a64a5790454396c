"""`landfall smoke`: a small training through a whole deployment, with a result for each assertion."""
