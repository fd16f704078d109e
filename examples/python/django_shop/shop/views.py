"""The requests."""

from django.db import transaction
from django.http import JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from .models import Order
from .tasks import charge


@csrf_exempt
@require_POST
@transaction.atomic
def place(request):
    order = Order.objects.create(email=request.POST["email"], cents=request.POST["cents"])
    # Keys of the queue's: one charge of an order at a time, whatever asks for it.
    result = charge.using(unique_by=f"charge {order.id}", group_id="orders").enqueue(order.id)
    return JsonResponse({"id": order.id, "task": result.id}, status=202)


urlpatterns = [path("orders", place)]
