"""A project of Django's for the tests."""
