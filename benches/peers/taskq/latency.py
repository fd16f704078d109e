"""From a signal to the grant of the task that waits for it, with one worker that waits: milliseconds, median and the worst but one percent."""

import threading
import time

import psycopg

ROUNDS = 200
resumed = {}
suspended = threading.Semaphore(0)
done = threading.Semaphore(0)


def worker():
    with psycopg.connect(autocommit=True) as db:
        while True:
            for id, token, tries in db.execute(
                "SELECT task_id, token, num_tries FROM taskq.own_tasks('bench', 1, '{work}', '5 minutes', wait => '10 s', with_steps => true)"
            ):
                if id in resumed:
                    resumed[id] = time.perf_counter()
                    db.execute("SELECT taskq.return_task(%s, %s)", [id, token])
                    done.release()
                else:
                    resumed[id] = None
                    db.execute(
                        "SELECT taskq.return_task(%s, %s, 'pending', depends_on => jsonb_build_array("
                        "jsonb_build_object('id', 'event ' || %s::text, 'signal', true)))",
                        [id, token, id],
                    )
                    suspended.release()


threading.Thread(target=worker, daemon=True).start()
times = []
with psycopg.connect(autocommit=True) as db:
    for n in range(ROUNDS):
        db.execute("SELECT taskq.insert_task(%s, 'work')", [str(n)])
        suspended.acquire()
        time.sleep(0.02)  # the worker waits again
        begin = time.perf_counter()
        db.execute("SELECT taskq.signal(%s)", [f"event {n}"])
        done.acquire()
        times.append((resumed[str(n)] - begin) * 1000)
times.sort()
print(f"{times[ROUNDS // 2]:.2f}\t{times[ROUNDS * 99 // 100]:.2f}")
