"""From an event to the task that waits for it, with one idle worker as the client starts it: milliseconds, median and the worst but one
percent."""

import threading
import time

from absurd_sdk import Absurd

ROUNDS = 50  # each takes a poll
app, client = Absurd("", queue_name="work"), Absurd("", queue_name="work")
resumed = {}
suspended = threading.Semaphore(0)
done = threading.Semaphore(0)


@app.register_task("work")
def work(params, ctx):
    first = params["n"] not in resumed
    resumed[params["n"]] = None
    if first:
        suspended.release()
    ctx.await_event(f"event {params['n']}", step_name="approved")
    resumed[params["n"]] = time.perf_counter()
    done.release()


client.register_task("work")(work)
threading.Thread(target=app.start_worker, daemon=True).start()
times = []
for n in range(ROUNDS):
    client.spawn("work", {"n": n})
    suspended.acquire()
    time.sleep(0.05 + n % 10 * 0.025)  # it is suspended, at any time between two polls
    begin = time.perf_counter()
    client.emit_event(f"event {n}", {"by": "ann"})
    done.acquire()
    times.append((resumed[n] - begin) * 1000)
times.sort()
print(f"{times[ROUNDS // 2]:.2f}\t{times[ROUNDS * 99 // 100]:.2f}")
