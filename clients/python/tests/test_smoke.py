from dataclasses import dataclass
import time
import taskq_pg as taskq
from taskq_pg.testing import drain, inserted, travel

@dataclass
class Resize:
    file: str
    size: int = 10

def test_smoke(taskq_app):
    app = taskq_app
    seen = []
    @app.task("resize")
    def resize(body: Resize, task: taskq.Task) -> dict:
        seen.append(body)
        return {"file": body.file}
    @app.task("mail")
    async def mail(body):
        seen.append(body)
    app.insert("resize", Resize("a.png"), id="img 7")
    app.insert("mail", {"to": "ann"}, depends_on=["img 7"])
    drain(app)
    assert seen == [Resize("a.png"), {"to": "ann"}]
    assert [t.state for t in inserted(app)] == ["completed"] * 2

def test_many(taskq_app):
    app = taskq_app
    @app.task("noop")
    def noop(): pass
    @app.task("anoop")
    async def anoop(): pass
    for name in ("noop", "anoop"):
      for c in (1, 10, 100):
        app.insert_many(name, [None] * 2000)
        t = time.perf_counter()
        drain(app, concurrency=c)
        print(name, c, 2000 / (time.perf_counter() - t))
