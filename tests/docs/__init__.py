"""README.md and docs/: what they tell people to type is typed here, and what they say of the code is compared with it."""
