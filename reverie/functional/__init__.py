"""Pure maths on tensors: returns, losses, transforms. No parameters, no state; tests use hand-computed numbers."""
