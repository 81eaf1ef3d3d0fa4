"""A web service that stores orders in a topic and serves those at its end.

Run it with ``uvicorn examples.fastapi_app:app --port 8000``.
"""

from typing import Annotated

from fastapi import Depends, FastAPI
from pydantic import BaseModel
from stele import AsyncClient, AsyncProducer
from stele.fastapi import add_error_handler, producer_for, stele_client, stele_lifespan


class Order(BaseModel):
    customer: str
    items: list[str]


app = FastAPI(lifespan=stele_lifespan)
# While the broker is down, routes answer 503 with Retry-After.
add_error_handler(app)
Orders = Annotated[AsyncProducer[bytes | str], Depends(producer_for("orders"))]
Stele = Annotated[AsyncClient, Depends(stele_client)]


@app.post("/orders", status_code=201)
async def create_order(order: Order, orders: Orders) -> dict[str, int]:
    receipt = await orders.send_and_wait(order.model_dump_json(), key=order.customer)
    return {"partition": receipt.partition, "offset": receipt.offset}


@app.get("/orders/{partition}/{offset}")
async def read_order(partition: int, offset: int, stele: Stele) -> Order:
    page = await stele.fetch("orders", partition=partition, offset=offset, max_records=1)
    return Order.model_validate_json(page.records[0].value or b"{}")
