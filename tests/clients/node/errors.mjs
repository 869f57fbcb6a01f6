// How the openai and anthropic packages for Node understand what goes wrong.
//   node errors.mjs BASE_URL EMPTY_URL KEY ENDED_KEY EMPTY_KEY  ->  one line of JSON per call
// EMPTY_URL is a gateway without a pool, EMPTY_KEY a rollout's there; ENDED_KEY is of a rollout that is over.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const [base, empty, key, ended, emptyKey] = process.argv.slice(2);
const user = (content) => [{ role: "user", content }];
const openai = (url, apiKey, maxRetries = 0) => new OpenAI({ apiKey, baseURL: `${url}/v1`, maxRetries });
const claude = (url, apiKey, maxRetries = 0) =>
  new Anthropic({ apiKey, authToken: null, baseURL: url, maxRetries });
const APIS = {
  chat: {
    client: openai,
    ask: (client, text, more) => client.chat.completions.create({ model: "m", messages: user(text), ...more }),
    code: (error) => error.code,
  },
  responses: {
    client: openai,
    ask: (client, text, more) => client.responses.create({ model: "m", input: text, ...more }),
    code: (error) => error.code,
  },
  messages: {
    client: claude,
    ask: (client, text, more) =>
      client.messages.create({ model: "m", max_tokens: 64, messages: user(text), ...more }),
    code: (error) => error.error?.error?.type,
  },
};

async function failing(work) {
  try {
    await work();
  } catch (error) {
    return error;
  }
  throw new Error("it did not fail");
}

for (const [name, { client, ask, code }] of Object.entries(APIS)) {
  const cases = {
    "wrong key": () => ask(client(base, "wrong"), "hi"),
    misspelt: () => ask(client(base, key), "hi", { temprature: 1 }),
    "too long": () => ask(client(base, key), "x".repeat(5000)),
    ended: () => ask(client(base, ended, 2), "hi"),
    "no pool": () => ask(client(empty, emptyKey), "hi"),
  };
  for (const [what, work] of Object.entries(cases)) {
    const error = await failing(work);
    const found = { api: name, case: what, status: error.status, kind: error.constructor.name };
    console.log(JSON.stringify({ ...found, code: code(error) }));
  }
  let last;
  const stream = async () => {
    for await (const event of await ask(client(base, key), "break", { stream: true })) last = event;
    if (last.type !== "response.failed") return;
    throw last.response.error;
  };
  console.log(JSON.stringify({ api: name, case: "broken", code: code(await failing(stream)) }));
}
