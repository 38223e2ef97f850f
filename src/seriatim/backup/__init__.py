"""Backups: copies of journals and of what the broker keeps, what each is good for, and putting them back."""
