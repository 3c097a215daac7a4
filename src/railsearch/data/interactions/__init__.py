"""Interactions: events of users and items from files, prepared folders, and splits."""
