"""How good poses are against others that count as true, or at landmarks, whoever made them."""
