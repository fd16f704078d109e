"""Migrations: the extension, where the role may make it."""
