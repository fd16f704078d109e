// Two apps that work in one process: a handler of the first does not heed its signal, one of the second ends in time.
import { setTimeout as sleep } from "node:timers/promises";
import { App } from "taskq-pg";

const hasty = new App(process.env.DATABASE_URL as string);
const patient = new App(process.env.DATABASE_URL as string);

hasty.task("hasty", async () => {
  console.log("begun hasty");
  await sleep(60_000);
});
patient.task("patient", async () => {
  console.log("begun patient");
  await sleep(4000);
  return "ended";
});

await Promise.all([
  hasty.work({ grace: "100 milliseconds", exitAfter: "100 milliseconds" }),
  patient.work({ grace: "1 minute" }),
]);
console.log("stopped");
