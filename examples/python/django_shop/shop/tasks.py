"""What is done behind the requests. A try that fails is repeated, so each task may be done twice."""

from django.db import transaction

from .models import Order

try:
    from django.tasks import task
except ImportError:  # Django 5.2
    from django_tasks import task


@task
def charge(order_id):
    with transaction.atomic():
        order = Order.objects.select_for_update().get(id=order_id)
        if order.state == "new":  # not by an earlier try
            order.state = "paid"
            order.save()
            receipt.enqueue(order_id)  # commits with the row


@task(queue_name="mail", priority=10)
def receipt(order_id):
    order = Order.objects.get(id=order_id)
    return f"to {order.email}: thank you for {order.cents / 100:.2f}"
