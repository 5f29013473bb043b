"""Pure maths on tensors: returns, losses. No parameters, no state, numbers worked by hand in the tests."""
