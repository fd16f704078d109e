"""A shop: FastAPI, SQLAlchemy 2 and asyncpg. An order and what is to be done for it commit together, or neither does.

pip install 'taskq-pg[binary,sqlalchemy]' fastapi asyncpg uvicorn
DATABASE_URL=postgresql://localhost/shop uvicorn shop_fastapi:api
DATABASE_URL=postgresql://localhost/shop taskq-pg work shop_fastapi:app
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel, PositiveInt
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import taskq_pg as taskq

URL = os.environ.get("DATABASE_URL", "postgresql:///shop")
engine = create_async_engine(URL.replace("postgresql://", "postgresql+asyncpg://", 1))
Session = async_sessionmaker(engine, expire_on_commit=False)
app = taskq.App(URL, name="shop", version=1)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    cents: Mapped[int]
    state: Mapped[str] = mapped_column(default="new")


class NewOrder(BaseModel):
    email: str
    cents: PositiveInt


class OfOrder(BaseModel):
    """The body of each task here: which order it is about."""

    order_id: int


# --- tasks ---------------------------------------------------------------------------------------------------------


@app.task("charge", lease="1 minute", max_concurrency=4)
async def charge(body: OfOrder, task: taskq.Task) -> None:
    """Take the money. The row and the end of the task commit together: the order is paid exactly once."""
    async with Session.begin() as session:
        order = await session.get(Order, body.order_id, with_for_update=True)
        if order is None or order.state != "new":
            raise taskq.Reject(f"there is no new order {body.order_id}")
        order.state = "paid"
        await task.complete_async(connection=session, result={"cents": order.cents})


@app.task("receipt", results=True, max_tries=10)
async def receipt(body: OfOrder, task: taskq.Task) -> str:
    """Send a mail. What the task it depends on has returned comes with it."""
    async with Session() as session:
        order = await session.get_one(Order, body.order_id)
    [paid] = task.results
    return f"to {order.email}: thank you for {paid.result['cents'] / 100:.2f}"


@app.task("remind", max_tries=3)
async def remind(body: OfOrder) -> str | None:
    """Ask for an opinion a week later."""
    async with Session() as session:
        order = await session.get(Order, body.order_id)
    return order and f"to {order.email}: are you content?"


# --- requests ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await app.close_async()
    await engine.dispose()


api = FastAPI(lifespan=lifespan)


async def in_session() -> AsyncIterator[AsyncSession]:
    async with Session.begin() as session:
        yield session


@api.post("/orders", status_code=202)
async def place(new: NewOrder, session: Annotated[AsyncSession, Depends(in_session, scope="function")]) -> dict[str, object]:
    order = Order(email=new.email, cents=new.cents)
    session.add(order)
    await session.flush()
    body = OfOrder(order_id=order.id)
    paid = await charge.insert_async(body, id=f"charge {order.id}", connection=session)
    await receipt.insert_async(body, id=f"receipt {order.id}", depends_on=[paid], connection=session)
    await remind.insert_async(body, depends_on=[paid], delay="7 days", connection=session)
    if "@" not in new.email:
        raise HTTPException(422, "no address")  # and the tasks go with the row
    return {"id": order.id}


@api.get("/orders/{order_id}")
async def show(order_id: int, session: Annotated[AsyncSession, Depends(in_session, scope="function")]) -> dict[str, object]:
    order = await session.get(Order, order_id)
    if order is None:
        raise HTTPException(404)
    sent = await app.wait_async(f"receipt {order_id}", "10 seconds")
    return {"state": order.state, "receipt": sent.result}
