"""The HTTP service of a home, for users on other machines."""
