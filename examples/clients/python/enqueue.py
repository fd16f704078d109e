"""A business row and its tasks in one transaction, with SQLAlchemy.

    PGHOST=... PGDATABASE=... python enqueue.py CUSTOMER TEXT [TEXT ...]

Either the order and its tasks are there, or none of them: an order without texts is refused after its row was
written, and a task that the queue refuses takes the order with it.
"""

import json
import sys

from sqlalchemy import BigInteger, Identity, Text, create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    customer: Mapped[str] = mapped_column(Text)


def insert_tasks(session: Session, tasks: list[dict]) -> list[str]:
    """taskq.insert_tasks in the session's own transaction; the ids."""
    query = text("SELECT * FROM taskq.insert_tasks(CAST(:tasks AS jsonb))")
    return list(session.scalars(query, {"tasks": json.dumps(tasks)}))


def place_order(session: Session, customer: str, texts: list[str]) -> list[str]:
    """The business logic. It neither commits nor knows who does."""
    order = Order(customer=customer)
    session.add(order)
    session.flush()  # gives the order its number
    # Ids made of the business key: the same order is not processed twice, however often it is asked for.
    parts = [
        {"id": f"order {order.id} part {n}", "action": "checksum", "max_tries": 5, "body": {"text": part}}
        for n, part in enumerate(texts)
    ]
    done = {"id": f"order {order.id}", "action": "order done", "spontaneous": True, "depends_on": [part["id"] for part in parts]}
    ids = insert_tasks(session, [*parts, done])
    if not texts:
        raise ValueError("an order without texts")
    return ids


def main():
    # Host, user and database come from PGHOST and the like. PgBouncer before 1.21 wants no prepared statements.
    engine = create_engine("postgresql+psycopg://", connect_args={"prepare_threshold": None})
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        ids = place_order(session, sys.argv[1], sys.argv[2:])
    print("\n".join(ids))


if __name__ == "__main__":
    main()
