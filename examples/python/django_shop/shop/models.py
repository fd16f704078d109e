"""What is sold."""

from django.db import models


class Order(models.Model):
    email = models.EmailField()
    cents = models.PositiveIntegerField()
    state = models.TextField(default="new")
