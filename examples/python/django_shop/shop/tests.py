"""Tests: what was enqueued is performed in the test's own transaction."""

from django.test import TestCase

from taskq_pg.django.testing import perform

from .models import Order
from .tasks import charge


class Orders(TestCase):
    def test_an_order_is_paid_and_a_receipt_sent(self):
        answer = self.client.post("/orders", {"email": "ann@example.com", "cents": 1250})
        self.assertEqual(answer.status_code, 202)
        charged, sent = perform()
        self.assertEqual(charged.id, answer.json()["task"])
        self.assertEqual(sent.return_value, "to ann@example.com: thank you for 12.50")
        self.assertEqual(Order.objects.get().state, "paid")

    def test_it_is_charged_once(self):
        order = Order.objects.create(email="bob@example.com", cents=100, state="paid")
        charge.enqueue(order.id)
        self.assertEqual(len(perform()), 1)  # no receipt
