// A worker in plain JavaScript: the protocol needs nothing but HTTP and JSON.
//
//   controller <-- POST /v1/leases (held open) --+
//       | lease: input, base_url, keys           |
//       v                                        |
//     rollout(task, policy, signal) --> your agent and product --> chat completions --> gateway
//       |        POST .../heartbeat while it runs
//       v
//     POST .../outcome, repeated until it is on record
//
//   TRADEWIND_WORKER_KEY=... node worker.mjs ./rollout.mjs http://controller:8200 [concurrency]
//
// It only dials out. Node 18 or later, no packages.

import { randomUUID } from "node:crypto";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const WAIT_S = 20; // how long the controller may hold a request for a lease open
const REPORT_S = 300; // how long an outcome is tried to be delivered
const GRACE_S = 2; // how long running rollouts may go on after SIGTERM

/** @typedef {{status: string, artefacts?: object, detail?: string}} Outcome */
/** @typedef {{base_url: string, api_key: string, model: string, deadline: number}} Policy */
/** @typedef {{rollout_id: string, task_id: string, input: object, base_url: string, model: string,
 *   model_key: string, result_key: string, deadline: number, heartbeat_s: number}} Lease */

const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

export class Worker {
  /** @param {(task: object, policy: Policy, signal: AbortSignal) => Promise<Outcome>} rollout */
  constructor(rollout, controller, key, name = "node-worker") {
    Object.assign(this, { rollout, controller, key, name, stopping: false });
    this.running = new Set();
    this.leasing = new AbortController();
  }

  /** Work until `stop`; then give running rollouts a little time and hand the rest back. */
  async run(concurrency) {
    await Promise.all(Array.from({ length: concurrency }, () => this.loop()));
  }

  stop() {
    this.stopping = true;
    this.leasing.abort();
    setTimeout(() => this.running.forEach((control) => control.abort("stopped")), GRACE_S * 1000);
  }

  async loop() {
    while (!this.stopping) {
      const lease = await this.lease();
      if (lease) await this.serve(lease);
    }
  }

  /** A lease, or null if there is none for now. The same id is sent until there is an answer. */
  async lease() {
    const body = { worker: this.name, wait_s: WAIT_S, request: randomUUID() };
    for (let pause = 0.2; !this.stopping; pause = Math.min(2 * pause, 5)) {
      try {
        const answer = await this.post("/v1/leases", this.key, body, this.leasing.signal);
        if (answer.status === 200) return await answer.json();
        if (answer.status === 204) return null;
        const said = await sentence(answer);
        if (answer.status < 500 && answer.status !== 429) throw new Refused(said);
        console.error(`no lease: ${said}`);
        await sleep(Math.max(pause, Number(answer.headers.get("retry-after") ?? 0)));
      } catch (error) {
        if (error instanceof Refused) throw error;
        if (this.stopping) return null;
        console.error(`no answer from ${this.controller} (${error.message})`);
        await sleep(pause);
      }
    }
    return null;
  }

  /** Play, with heartbeats, and report; a lost lease ends it without a report. */
  async serve(lease) {
    const control = new AbortController();
    this.running.add(control);
    const beating = setInterval(() => this.beat(lease, control), lease.heartbeat_s * 1000);
    try {
      const outcome = await this.play(lease, control.signal);
      if (control.signal.reason === "lost") console.error(`${lease.rollout_id}: lease lost`);
      else await this.report(lease, outcome);
    } finally {
      clearInterval(beating);
      this.running.delete(control);
    }
  }

  /** @returns {Promise<Outcome>} What came of it; an exception is the environment's error. */
  async play(lease, signal) {
    const { base_url, model, deadline } = lease;
    const policy = { base_url, api_key: lease.model_key, model, deadline };
    const left = Math.ceil(Math.max(0, deadline * 1000 - Date.now()));
    const limit = AbortSignal.timeout(left);
    const ended = new Promise((_, fail) => {
      limit.addEventListener("abort", () => fail(new Error("deadline")), { once: true });
      signal.addEventListener("abort", () => fail(new Error("aborted")), { once: true });
    });
    try {
      const either = AbortSignal.any ? AbortSignal.any([limit, signal]) : signal;
      return await Promise.race([this.rollout(lease.input, policy, either), ended]);
    } catch (error) {
      if (signal.reason === "stopped")
        return { status: "infra_error", detail: "the worker was stopped" };
      if (limit.aborted) return { status: "agent_limit", detail: "the deadline has passed" };
      return { status: error.status ?? "env_error", detail: `${error.name}: ${error.message}` };
    }
  }

  async beat(lease, control) {
    try {
      const path = `/v1/rollouts/${lease.rollout_id}/heartbeat`;
      const answer = await this.post(path, lease.result_key);
      if (answer.status === 401 || answer.status === 409) control.abort("lost");
    } catch {
      // a missed heartbeat is made up by the next one
    }
  }

  /** Safe to repeat: the controller keeps the first outcome. */
  async report(lease, outcome) {
    const until = Date.now() + REPORT_S * 1000;
    const path = `/v1/rollouts/${lease.rollout_id}/outcome`;
    for (let pause = 0.2; Date.now() < until; pause = Math.min(2 * pause, 5)) {
      try {
        const answer = await this.post(path, lease.result_key, outcome);
        const said = answer.ok ? (await answer.json()).status : await sentence(answer);
        if (answer.status < 500) return console.error(`${lease.rollout_id}: ${said}`);
      } catch (error) {
        console.error(`${lease.rollout_id}: not delivered (${error.message}), again`);
      }
      await sleep(pause);
    }
    console.error(`${lease.rollout_id}: not delivered in ${REPORT_S} s`);
  }

  post(path, key, body = {}, signal = undefined) {
    const timeout = AbortSignal.timeout((WAIT_S + 15) * 1000);
    return fetch(this.controller + path, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify(body),
      signal: signal && AbortSignal.any ? AbortSignal.any([signal, timeout]) : timeout,
    });
  }
}

class Refused extends Error {}

async function sentence(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text).error ?? `status ${answer.status}`;
  } catch {
    return text.slice(0, 200) || `status ${answer.status}`;
  }
}

async function main([file, controller, concurrency = "8"]) {
  const key = process.env.TRADEWIND_WORKER_KEY;
  if (!file || !controller || !key) {
    console.error("TRADEWIND_WORKER_KEY=... node worker.mjs ./rollout.mjs URL [concurrency]");
    return 2;
  }
  delete process.env.TRADEWIND_WORKER_KEY; // an agent's shell would inherit it
  const { rollout } = await import(pathToFileURL(resolve(file)).href);
  const worker = new Worker(rollout, controller.replace(/\/$/, ""), key);
  for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => worker.stop());
  try {
    await worker.run(Number(concurrency));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    console.error(`the controller refuses this worker: ${error.message}`);
    return 2;
  }
  return 0;
}

if (import.meta.url === pathToFileURL(process.argv[1]).href)
  process.exit(await main(process.argv.slice(2)));
